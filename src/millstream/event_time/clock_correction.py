"""Clock correction: the true times of events from devices with wrong clocks.

A device records when something happened (`event`) and when it was sent (`sent`), both by its own
clock; a correct clock records when it was `received`. The error of the device's clock is then
`received - sent`, and the true time of the event `event + (received - sent)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

FLAG, OFFSET = "clock_flag", "clock_offset"
_FAR = 2**61  # microseconds: sums and differences of two stay within 64 bits


@dataclass(frozen=True, slots=True)
class ClockCorrection:
    """The columns with the three stamps; `received` may be the record's own, `_timestamp`."""

    event: str
    sent: str
    received: str

    def __str__(self) -> str:
        return f"{self.event} + ({self.received} - {self.sent})"


def corrected(
    rows: pa.Table, correction: ClockCorrection, received: pa.Array | pa.ChunkedArray
) -> pa.Table:
    """The rows with `event` corrected; adds `clock_flag` and `clock_offset` (microseconds).

    Contradictory stamps (`event` after `sent`, or one is missing) are flagged and not corrected:
    the offset is 0.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    event, have_event = _stamps(rows[correction.event])
    sent, have_sent = _stamps(rows[correction.sent])
    arrived, have_arrived = _stamps(received)
    sound = have_event & have_sent & have_arrived & (event <= sent)
    for stamps in (event, sent, arrived):
        sound &= (stamps > -_FAR) & (stamps < _FAR)
    offsets = np.where(sound, arrived - sent, 0)
    place = rows.column_names.index(correction.event)
    kind = rows.schema.field(place).type
    true = pc.if_else(pa.array(have_event), pa.array(event + offsets), pa.scalar(None, pa.int64()))
    return (
        rows.set_column(place, correction.event, true.cast(kind))
        .append_column(FLAG, pa.array(~sound))
        .append_column(OFFSET, pa.array(offsets))
    )


def _stamps(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), known
