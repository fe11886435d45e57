"""The columns of a join's results: those of the left, those of the right, then the event time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.operators.joins.on import Pairs

LEFT, RIGHT = 0, 1
EVENT_TIME = "event_time"


class Column(NamedTuple):
    """A column of the result: its name, the side it comes from, and its name on that side."""

    name: str
    side: int
    own: str


def check_suffix(suffix: object, *, step: str) -> None:
    """Refuse an empty suffix."""
    if suffix is not None and not (isinstance(suffix, str) and suffix.strip()):
        raise InvalidSpec(
            f"the `suffix` of {step} needs text that is added to names",
            got=repr(suffix),
            do=f'write {step}(…, suffix="_right")',
        )


def result_columns(
    left: Sequence[str],
    right: Sequence[str],
    on: Pairs,
    *,
    step: str,
    suffix: str | None = None,
    timed: bool = False,
) -> tuple[Column, ...]:
    """The columns of both sides, in their order.

    A key with the same name on both sides appears once. Any other column of the right whose name
    the left has, too, gets the suffix. `timed` results have one more column, `event_time`.

    Raises:
        InvalidSpec: `on` has an unknown column, or two result columns have the same name.
    """
    for side, names, others in ((LEFT, left, "left"), (RIGHT, right, "right")):
        missing = [pair[side] for pair in on if pair[side] not in names]
        if missing:
            raise InvalidSpec(
                f"the `on` of {step} needs columns of the {others} side",
                got=", ".join(map(repr, missing)),
                do=f"choose from {', '.join(names)}",
            )
    shared = {name for name, other in on if name == other}
    rights = [name for name in right if name not in shared]
    added = {EVENT_TIME} if timed else set()
    for names, others in ((left, "left"), (rights if suffix is None else (), "right")):
        _refuse_time_of_pairs([name for name in names if name.lower() in added], others, step)
    taken = {name.lower() for name in left} | added
    both = [name for name in rights if name.lower() in taken]
    if both and suffix is None:
        raise InvalidSpec(
            f"{step} needs names that only one side has, apart from equal keys",
            got=f"{', '.join(map(repr, both))} on both",
            do='give suffix="_right" for those of the right, or rename one: '
            f'.select("…", "{both[0]} as right_{both[0]}")',
        )
    renamed = {name: f"{name}{suffix}" for name in both}
    _refuse_taken(renamed, taken, {name.lower() for name in rights if name not in both}, step)
    return (
        *(Column(name, LEFT, name) for name in left),
        *(Column(renamed.get(name, name), RIGHT, name) for name in rights),
    )


def _refuse_time_of_pairs(names: Sequence[str], side: str, step: str) -> None:
    if names:
        raise InvalidSpec(
            f"{step} needs the name {EVENT_TIME} for the time of each result",
            got=f"a column of that name on the {side}",
            do=f'rename it there: .select("…", "{names[0]} as {side}_time")',
        )


def _refuse_taken(renamed: dict[str, str], taken: set[str], others: set[str], step: str) -> None:
    for own, name in renamed.items():
        if name.lower() in taken | others:
            raise InvalidSpec(
                f"the `suffix` of {step} needs to make names that are free",
                got=f"{name!r} for {own!r} of the right, and another column of that name",
                do="choose another suffix",
            )
