"""The specs of joins with a table: `stream.as_of(table)` and `stream.lookup(table)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from millstream.errors import InvalidSpec
from millstream.operators.joins.on import On, Pairs, check_how, pairs, said, said_suffix
from millstream.operators.joins.result_columns import check_suffix

How = Literal["inner", "left"]
Plan = Literal["replicated", "repartitioned"]
SMALL = 16 << 20


@dataclass(frozen=True, slots=True)
class AsOf:
    """Each event with the row its key had in the table at the event's own time.

    `plan` is `replicated`, where every task reads the whole table and events stay evenly spread,
    or `repartitioned`, where both are shuffled by key. By default a small table is replicated.
    `suffix` is added to names of the table's columns that the stream has, too.
    """

    on: Pairs
    how: How = "inner"
    plan: Plan | None = None
    suffix: str | None = None

    def __post_init__(self) -> None:
        check_how(self.how, How, step="as_of")
        check_plan(self.plan, step="as_of")
        check_suffix(self.suffix, step="as_of")

    def replicated(self, size: int) -> bool:
        """Whether a table of this size in bytes is replicated."""
        return self.plan == "replicated" or (self.plan is None and size <= SMALL)

    def __str__(self) -> str:
        return f"as_of({_said(self)})"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Each event with the row its key has in the table now, when the event is processed.

    `plan` and `suffix` are as in `AsOf`.
    """

    on: Pairs
    how: How = "inner"
    plan: Plan | None = None
    suffix: str | None = None

    def __post_init__(self) -> None:
        check_how(self.how, How, step="lookup")
        check_plan(self.plan, step="lookup")
        check_suffix(self.suffix, step="lookup")

    def replicated(self, size: int) -> bool:
        """Whether a table of this size in bytes is replicated."""
        return self.plan == "replicated" or (self.plan is None and size <= SMALL)

    def __str__(self) -> str:
        return f"lookup({_said(self)})"


def as_of(on: On, how: How = "inner", plan: Plan | None = None, suffix: str | None = None) -> AsOf:
    """The spec from the user's arguments.

    >>> print(as_of({"country": "code"}, how="left"))
    as_of(on={'country': 'code'}, how="left")

    Raises:
        InvalidSpec: no columns, an unknown `how` or `plan`, or an empty suffix.
    """
    return AsOf(pairs(on, step="as_of"), how, plan, suffix)


def lookup(
    on: On, how: How = "inner", plan: Plan | None = None, suffix: str | None = None
) -> Lookup:
    """The spec from the user's arguments.

    >>> print(lookup(["country", "kind"]))
    lookup(on=['country', 'kind'])

    Raises:
        InvalidSpec: no columns, an unknown `how` or `plan`, or an empty suffix.
    """
    return Lookup(pairs(on, step="lookup"), how, plan, suffix)


def check_plan(plan: object, *, step: str) -> None:
    """Refuse an unknown plan."""
    if plan is not None and plan not in get_args(Plan):
        raise InvalidSpec(
            f"the `plan` of {step} needs one of {', '.join(get_args(Plan))}",
            got=repr(plan),
            do="leave it out: it is chosen by the size of the table",
        )


def _said(spec: AsOf | Lookup) -> str:
    how = "" if spec.how == "inner" else f', how="{spec.how}"'
    plan = "" if spec.plan is None else f', plan="{spec.plan}"'
    return f"on={said(spec.on)}{how}{plan}{said_suffix(spec.suffix)}"
