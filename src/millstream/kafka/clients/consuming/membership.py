"""A group member and its assignor, which decides how members share the partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.errors import InvalidInput, MillstreamError

Assignor = Literal["cooperative-sticky", "range", "roundrobin"]

_ASSIGNORS = {
    "cooperative-sticky": "cooperative-sticky",
    "range": "range,roundrobin",
    "roundrobin": "roundrobin,range",
}
"""What a member supports, in order of preference. A group rebalances either incrementally
(cooperative-sticky) or by revoking all partitions (the other two); the two cannot be mixed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group, and its preferred assignor."""

    group: str
    assignor: Assignor

    @property
    def eager(self) -> bool:
        """Whether a rebalance revokes all its partitions first."""
        return self.assignor != "cooperative-sticky"

    @property
    def assignors(self) -> str:
        """librdkafka's `partition.assignment.strategy`."""
        return _ASSIGNORS[self.assignor]

    def no_common_assignor(self) -> MillstreamError:
        """The error for a group whose other members support none of its assignors."""
        others = (
            'assignor="cooperative-sticky"'
            if self.eager
            else 'assignor="range", the default of other Kafka clients'
        )
        return MillstreamError(
            f"the members of the group {self.group} need an assignor in common",
            got=f"others that support none of {self.assignors.replace(',', ', ')}",
            do=f"create this consumer with {others}, or choose another group",
        )


def member(group: str | None, assignor: Assignor | None) -> Member | None:
    """The member of a consumer in a group; None without a group.

    Raises:
        InvalidInput: there is no such assignor, or an assignor without a group.
    """
    if assignor is not None and assignor not in _ASSIGNORS:
        raise InvalidInput(f"assignor needs one of {', '.join(_ASSIGNORS)}", got=repr(assignor))
    if group is None and assignor is not None:
        raise InvalidInput("assignor= needs a group", got="none", do="pass group=...")
    return None if group is None else Member(group, assignor or "cooperative-sticky")
