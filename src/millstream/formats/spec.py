"""What a wire format promises the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from millstream.schema import Schema


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A block of records, parted into rows and refusals; every record is in one of them.

    `table` holds the good rows in input order, with exactly `schema.arrow()`; `good` and
    `bad` are ascending indices (int64) into the input; `reasons` has one sentence for each
    bad record; `extra` counts the good rows that carried fields outside the schema.
    """

    table: pa.Table
    good: np.ndarray
    bad: np.ndarray
    reasons: list[str]
    extra: int


class Format(Protocol):
    """One wire format: pure functions between record values and Arrow columns."""

    @property
    def name(self) -> str:
        """The word users write in `format=`."""

    def check(self, schema: Schema) -> None:
        """Refuse, while building, a schema that this format cannot carry.

        Raises:
            InvalidSpec: the sentence names the column.
        """

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        """Record values (binary or large binary, null for a tombstone) to columns.

        A record that does not fit the schema is a bad row with a reason, never an
        error and never a guess.
        """

    def encode(self, table: pa.Table) -> pa.Array:
        """One record value (binary, never null) for each row."""
