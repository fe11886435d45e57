"""Which slices each overlapping window is made of, counted by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.operators.windows.fixed.hopping_kernel import covered
from millstream.operators.windows.fixed.layout import Grid, Layout

keys = st.lists(st.sets(st.integers(-12, 12), min_size=1, max_size=6), max_size=4)


@given(keys=keys, size=st.integers(1, 6), every=st.integers(1, 6), ends=st.tuples(
    st.integers(-6, 6), st.integers(-6, 6)))  # fmt: skip
def test_every_window_over_a_keys_slices_is_found_once_with_all_of_them(
    keys: list[set[int]], size: int, every: int, ends: tuple[int, int]
) -> None:
    first, last = sorted(ends)
    ticks = [tick for key in keys for tick in sorted(key)]
    sizes = [len(key) for key in keys]
    starts = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, np.int64)
    layout = Layout(Grid(1, 0), size, every)

    found = covered(np.array(ticks, np.int64), starts, layout, first, last)

    windows = list(zip(*(column.tolist() for column in found), strict=True))
    assert windows == [
        (window, begin + min(inside), begin + max(inside) + 1)
        for begin, key in zip(starts.tolist(), keys, strict=True)
        for window in range(first, last)
        if (inside := [place for place, tick in enumerate(sorted(key))
                       if window * every <= tick < window * every + size])
    ]  # fmt: skip
