"""How the members of a group share its partitions: by an assignor that all of them offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.errors import InvalidInput, MillstreamError

Assignor = Literal["cooperative-sticky", "range", "roundrobin"]

_OFFERED = {
    "cooperative-sticky": "cooperative-sticky",
    "range": "range,roundrobin",
    "roundrobin": "roundrobin,range",
}
"""What a member offers, the first by preference. A group moves partitions either incrementally
(cooperative-sticky) or all of them at each change (the other two): these do not mix."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group, and the assignor it was made with."""

    group: str
    assignor: Assignor

    @property
    def eager(self) -> bool:
        """Whether it gives all partitions back before it is assigned others."""
        return self.assignor != "cooperative-sticky"

    @property
    def offered(self) -> str:
        """The assignors it offers, as librdkafka's setting has them."""
        return _OFFERED[self.assignor]

    def unlike(self) -> MillstreamError:
        """The group has members that offer none of its assignors."""
        others = (
            'assignor="cooperative-sticky"'
            if self.eager
            else 'assignor="range", which other Kafka clients have by default'
        )
        return MillstreamError(
            f"the members of the group {self.group} need an assignor in common",
            got=f"others that offer none of ours ({self.offered.replace(',', ', ')})",
            do=f"make this consumer with {others}, or choose another group",
        )


def member(group: str | None, assignor: Assignor | None) -> Member | None:
    """The member that a consumer is; None for one without a group.

    Raises:
        InvalidInput: there is no such assignor, or no group that would need one.
    """
    if assignor is not None and assignor not in _OFFERED:
        raise InvalidInput(f"assignor needs one of {', '.join(_OFFERED)}", got=repr(assignor))
    if group is None and assignor is not None:
        raise InvalidInput("assignor= needs a group", got="none", do="say group=...")
    return None if group is None else Member(group, assignor or "cooperative-sticky")
