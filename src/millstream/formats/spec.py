"""The protocol of a wire format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from millstream.schema import Schema


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A block of records, divided into good rows and bad records.

    `table` holds the good rows in input order, with exactly `schema.arrow()`; `good` and
    `bad` are ascending indices (int64) into the input; `reasons` has one sentence per bad
    record; `extra` counts the good rows with fields outside the schema.
    """

    table: pa.Table
    good: np.ndarray
    bad: np.ndarray
    reasons: list[str]
    extra: int


class Format(Protocol):
    """A wire format: pure functions between record values and Arrow columns."""

    @property
    def name(self) -> str:
        """The name of the format in `format=`."""

    def check(self, schema: Schema) -> None:
        """Refuse a schema that this format cannot represent; called while building.

        Raises:
            InvalidSpec: the message names the column.
        """

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        """Decode record values (binary or large binary, null for a tombstone) to columns.

        A record that does not fit the schema becomes a bad row with a reason; it never raises.
        """

    def encode(self, table: pa.Table) -> pa.Array:
        """Encode each row as a record value (binary, never null)."""
