"""The columns of a join's results: those of the left, then those of the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.joins.on import Pairs

LEFT, RIGHT = 0, 1


def result_columns(
    left: Sequence[str],
    right: Sequence[str],
    on: Pairs,
    *,
    step: str,
    one: Sequence[str] = (),
) -> tuple[tuple[str, int], ...]:
    """The names in their order, each with the side it comes from.

    A key that has the same name on both sides is there once, and so is a name in `one`.

    Raises:
        InvalidSpec: `on` names a column a side does not have, or both sides have a name.
    """
    for side, names, others in ((LEFT, left, "left"), (RIGHT, right, "right")):
        missing = [pair[side] for pair in on if pair[side] not in names]
        if missing:
            raise InvalidSpec(
                f"the `on` of {step} needs columns of the {others} side",
                got=", ".join(map(repr, missing)),
                do=f"choose from {', '.join(names)}",
            )
    shared = {name for name, other in on if name == other} | set(one)
    known = {name.lower() for name in left}
    both = [name for name in right if name.lower() in known and name not in shared]
    if both:
        raise InvalidSpec(
            f"{step} needs names that only one side has, apart from equal keys",
            got=f"{', '.join(map(repr, both))} on both",
            do=f'rename it on one side: .select("…", "{both[0]} as right_{both[0]}")',
        )
    return (
        *((name, LEFT) for name in left),
        *((name, RIGHT) for name in right if name not in shared),
    )
