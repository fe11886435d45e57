"""The conformance check of the newer formats: fast path, exact path and oracle agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


def same(fast: Decoded, exact: Decoded, expected: Sequence[Any], schema: Schema) -> Decoded:
    """Fail if the paths differ, or differ from `expected`: a row per record, None for bad ones."""
    for made in (fast, exact):
        made.table.validate(full=True)
        assert made.table.schema.equals(schema.arrow(), check_metadata=True)
        assert len(made.reasons) == made.bad.size
        assert all(made.reasons)
    good = [number for number, row in enumerate(expected) if row is not None]
    assert fast.good.tolist() == exact.good.tolist() == good, first_difference(fast, exact, good)
    assert (fast.bad.tolist(), fast.reasons) == (exact.bad.tolist(), exact.reasons)
    assert fast.extra == exact.extra
    rows = [shown(row) for row in expected if row is not None]
    assert [shown(row) for row in fast.table.to_pylist()] == rows
    assert [shown(row) for row in exact.table.to_pylist()] == rows
    return fast


def shown(row: dict[str, Any]) -> str:
    """`repr` distinguishes -0.0 from 0.0, and all NaN are equal; a zone has one name."""
    return repr(row).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def first_difference(
    fast: Decoded, exact: Decoded, good: list[int]
) -> tuple[int, bool, bool, bool]:
    sets = [set(fast.good.tolist()), set(exact.good.tolist()), set(good)]
    number = min((sets[0] ^ sets[1]) | (sets[1] ^ sets[2]))
    return number, number in sets[0], number in sets[1], number in sets[2]
