"""Kernels of windows: the fastest one that supports the trigger and the late policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.windows.by_rows.delta_kernel import Moved, delta_kernel
from millstream.operators.windows.by_rows.panes_kernel import RowPanesKernel
from millstream.operators.windows.by_rows.punctuated_kernel import punctuated_kernel, punctuating
from millstream.operators.windows.by_rows.rows_kernel import RowsKernel
from millstream.operators.windows.by_rows.spec import Delta, Rows
from millstream.operators.windows.by_rows.touched_windows import CountedWindows, CutWindows
from millstream.operators.windows.fixed.hopping_kernel import SlicedKernel
from millstream.operators.windows.fixed.processing_time import ProcessingTime
from millstream.operators.windows.fixed.tumbling_kernel import TumblingKernel
from millstream.operators.windows.panes.kernel import PanesKernel
from millstream.operators.windows.sessions.kernel import SessionKernel
from millstream.operators.windows.sessions.spec import Session
from millstream.operators.windows.sliding.kernel import SlidingKernel
from millstream.operators.windows.sliding.spec import Sliding
from millstream.operators.windows.spec import Everything, Hopping, Tumbling
from millstream.operators.windows.trigger import Trigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.kernel import Kernel
    from millstream.operators.windows.by_rows.spec import Punctuated
    from millstream.plan.graph import Policy, Window


def window_kernel(
    window: Window,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    schema: pa.Schema,
    *,
    policy: Policy | None = None,
    retractable: bool = False,
) -> Kernel:
    """The kernel of a window over rows of a schema, with `_time` for event time."""
    if isinstance(window, Tumbling | Hopping | Everything):
        return _fixed(window, keys, aggregates, schema, policy, retractable=retractable)
    if isinstance(window, Session):
        trigger, keep = (policy.trigger, policy.keep) if policy else (None, 0)
        return SessionKernel(window, keys, aggregates, schema, trigger=trigger, keep=keep,
                             panes=policy is not None, retractable=retractable)  # fmt: skip
    if isinstance(window, Sliding):
        return SlidingKernel(window, keys, aggregates, schema, panes=policy is not None)
    return _by_rows(window, keys, aggregates, schema, policy)


def _by_rows(
    window: Rows | Delta | Punctuated,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    schema: pa.Schema,
    policy: Policy | None,
) -> Kernel:
    """Windows bounded by rows; with early panes they need the kernel that reads its state."""
    if policy is not None:
        trigger = policy.trigger or Trigger()
        return RowPanesKernel(_touching(window, schema), keys, aggregates, schema, trigger)
    if isinstance(window, Rows):
        return RowsKernel(window, keys, aggregates, schema)
    if isinstance(window, Delta):
        return delta_kernel(window, keys, aggregates, schema)
    return punctuated_kernel(window, keys, aggregates, schema)


def _touching(window: Rows | Delta | Punctuated, schema: pa.Schema) -> CountedWindows | CutWindows:
    if isinstance(window, Rows):
        return CountedWindows(window)
    return CutWindows(Moved(window, schema) if isinstance(window, Delta) else punctuating(window))


def _fixed(
    window: Tumbling | Hopping | Everything,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    schema: pa.Schema,
    policy: Policy | None,
    *,
    retractable: bool,
) -> Kernel:
    """Windows of fixed bounds; several panes per window need the panes kernel."""
    if isinstance(window, Everything) or (policy and (policy.trigger or policy.keep)):
        trigger, keep = (policy.trigger, policy.keep) if policy else (None, 0)
        kernel: Kernel = PanesKernel(window, keys, aggregates, schema, trigger=trigger, keep=keep,
                                     panes=policy is not None, retractable=retractable)  # fmt: skip
    elif isinstance(window, Hopping) or window.zone is not None:
        kernel = SlicedKernel(window, keys, aggregates, schema, panes=policy is not None,
                              retractable=retractable)  # fmt: skip
    else:
        kernel = TumblingKernel(window, keys, aggregates, schema, panes=policy is not None,
                                retractable=retractable)  # fmt: skip
    if not isinstance(window, Everything) and window.clock == "processing":
        return ProcessingTime(kernel, window)
    return kernel
