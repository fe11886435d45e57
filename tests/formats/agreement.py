"""The conformance check: the fast path, the exact path and the oracle give the same result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.formats.json_records import Fields, ddl
from tests.oracles import json_oracle

from millstream.formats.json.decode import decode, decode_exactly
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.formats.spec import Decoded


def agreed(values: list[bytes | None], fields: Fields, kind: pa.DataType | None = None) -> Decoded:
    """Decode in all three ways; fail if they differ in rows, values, reasons or counts."""
    schema = Schema.parse(ddl(fields))
    array = pa.array(values, kind or pa.binary())
    fast, exact = decode(array, schema), decode_exactly(array, schema)
    for made in (fast, exact):
        made.table.validate(full=True)
        assert made.table.schema.equals(schema.arrow(), check_metadata=True)
    expected = [_by_oracle(raw, fields) for raw in values]
    rows = [row for row in expected if row is not None]
    good = [number for number, row in enumerate(expected) if row is not None]
    assert fast.good.tolist() == exact.good.tolist() == good, _first(values, fast, exact, good)
    assert fast.bad.tolist() == exact.bad.tolist()
    assert fast.reasons == exact.reasons
    assert fast.extra == exact.extra == sum(extra for _, extra in rows)
    shown = [repr(row) for row, _ in rows]
    assert [_shown(row) for row in fast.table.to_pylist()] == shown
    assert [_shown(row) for row in exact.table.to_pylist()] == shown
    return fast


def _by_oracle(raw: bytes | None, fields: Fields) -> tuple[dict[str, Any], bool] | None:
    try:
        return json_oracle.read(raw, fields)
    except json_oracle.Bad:
        return None


def _shown(row: dict[str, Any]) -> str:
    """`repr` distinguishes -0.0 from 0.0, and all NaN are equal; a zone has one name."""
    return repr(row).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def _first(
    values: list[bytes | None], fast: Decoded, exact: Decoded, good: list[int]
) -> tuple[bytes | None, bool, bool, bool]:
    sets = [set(fast.good.tolist()), set(exact.good.tolist()), set(good)]
    number = min((sets[0] ^ sets[1]) | (sets[1] ^ sets[2]))
    return values[number], number in sets[0], number in sets[1], number in sets[2]
