"""Faults planted in the kernels of fixed windows with panes, and the tests that must catch them."""

from __future__ import annotations

Pairs = tuple[tuple[str, str], ...]

FAULTS: dict[str, Pairs] = {
    "operators/aggregates/aggregation.py": (
        ("groups if rows.all() else", "groups if rows.any() else"),
        ("groups.slice(first, each)", "groups.slice(first, each - 1)"),
        ("None if (signs == 1).all() else signs", "None"),
        ('"_time": pa.array(ends - 1)', '"_time": pa.array(ends)'),
    ),
    "operators/windows/fixed/layout.py": (
        ("(near - self.offset) // self.unit", "(near + self.offset) // self.unit"),
        (
            "first = (ticks - self.size) // self.every + 1",
            "first = (ticks - self.size) // self.every",
        ),
        ("np.maximum(last - first + 1, 0)", "last - first + 1"),
        ("return (tick - self.size) // self.every + 1", "return (tick - self.size) // self.every"),
        ("windows * self.every + self.size", "windows * self.every + self.size + 1"),
        ("max(MIN_TIME, watermark - keep)", "watermark"),
        ('ambiguous="earliest"', 'ambiguous="latest"'),
    ),
    "operators/windows/fixed/hopping_kernel.py": (
        ("np.clip(opened - begin, 0, counts)", "np.clip(opened - begin - 1, 0, counts)"),
        ("np.flatnonzero(counts > gone)", "np.flatnonzero(counts >= gone)"),
        ("return np.maximum(begin, first), ", "return begin, "),
        ("np.minimum(begin + counts, last)", "begin + counts"),
        ("entered[1:] = np.maximum(begin[1:], end[:-1])", "pass"),
        ("left[:-1] = np.minimum(end[:-1], begin[1:])", "pass"),
        ("entered[starts] = begin[starts]", "pass"),
        ("left[starts[1:] - 1] = end[starts[1:] - 1]", "pass"),
        ("(pa.array(lows[some]))", "(pa.array(lows[: len(lows[some])]))"),
        ("(counts == 0).sum()", "(counts == 1).sum()"),
        ("last * self._layout.every", "first * self._layout.every"),
        ("last * self._layout.every", "last * self._layout.every + 1"),
    ),
    "operators/windows/panes/firing.py": (
        ("groups.since + period", "groups.since + period + 1"),
        ("groups.new >= rows", "groups.new > rows"),
        ("np.where(groups.new > 0, at, END_OF_TIME)", "at"),
        ("np.minimum.reduce", "np.maximum.reduce"),
        ("np.maximum.reduce", "np.minimum.reduce"),
        ("self.stays & ~self.fires & (self.at < END_OF_TIME)", "self.fires"),
    ),
    "operators/windows/panes/clock_timers.py": (
        ("timers.scan(MIN_TIME, clock + 1)", "timers.scan(MIN_TIME, clock)"),
        ("{TIMERS: clock + 1}", "{TIMERS: clock + 2}"),
        ("soonest if known is None else min(known, soonest)", "soonest"),
    ),
    "operators/windows/panes/state.py": (
        ("np.where(fires, 0, numbers(groups, ARRIVED))", "numbers(groups, ARRIVED)"),
        ("(fires & standing)", "fires"),
        ("np.where(fires, clock, numbers(groups, SINCE))", "numbers(groups, SINCE)"),
        ("mask=~standing", "mask=standing"),
        ("pa.array(np.full(count, clock))", "pa.array(np.full(count, clock + 1))"),
        ('column.combine in ("sum", "dsum")', 'column.combine == "dsum"'),
    ),
    "operators/windows/panes/rows.py": (
        ("(labels == ON_TIME) | (labels == LATE)", "labels == ON_TIME"),
        ("standing, labels == LATE)", "standing, labels == ON_TIME)"),
        ("numbers(earlier, PANES) - 1", "numbers(earlier, PANES)"),
        ("standing + 0.5", "standing - 0.5"),
        ("bounds(groups if within is None else within)", "bounds(groups)"),
        ("bounds(groups if within is None else within)", "bounds(parts)"),
        ("taken[standing] = self._start_moved(those)", "taken[standing] = False"),
    ),
    "operators/windows/panes/kernel.py": (
        ("at <= clock) | forgotten", "at <= clock)"),
        ("early = ~ended & (at <= clock)", "early = ~ended & (at < clock)"),
        ("on_time = ended & ~left", "on_time = ended"),
        ("windows < first_open(batch_time.before)", "windows < first_open(batch_time.after)"),
        ("outside &= (orders < low)", "outside &= (orders <= low)"),
        ('shown=kind == "retracting" or keep > 0', 'shown=kind == "retracting"'),
    ),
    "operators/windows/by_rows/touched_windows.py": (
        ("numbers = cut.numbers - cut.ends[keyed.key_of]", "numbers = cut.numbers"),
        ("else ~keyed.kept & ~cut.outside", "else ~keyed.kept"),
        ("seen[of[first]] = int_values(plain(keyed.rows[ROWS]))[first]", "pass"),
        ("windows - full[of[held]]", "windows"),
        ("(windows - full[of])[spans]", "windows[spans]"),
        ("(seen - self._n) // self._every + 1", "(seen - self._n) // self._every"),
        ("math.gcd(spec.n, spec.every)", "spec.every"),
        (
            "np.maximum(windows * self._every // self._cell, skipped[of])",
            "windows * self._every // self._cell",
        ),
        ("(spans_of_kept < spans.stop)", "(spans_of_kept <= spans.stop)"),
        ("-(-(seen + counts) // self._every)", "(seen + counts) // self._every"),
    ),
    "operators/windows/by_rows/panes_kernel.py": (
        ("numbers(groups, WINDOW) < 0", "numbers(groups, WINDOW) <= 0"),
        ("closed | (at <= clock)", "closed | (at < clock)"),
        ('shown=kind == "retracting" or moves', 'shown=kind == "retracting"'),
        ("left.order + left.new_generation", "left.order"),
        ("outcome.floors[OPEN] = left.order + 1", "pass"),
        ("pa.concat_tables([has, self._gone(before)])", "has"),
        ("everything=finish or marked", "everything=finish"),
        ("dict.fromkeys(self.tables, END_OF_TIME)", "{}"),
        ("np.full(both.num_rows, max(0, view.floor))", "np.full(both.num_rows, 0)"),
        ("[batch.select(names), due]", "[batch.select(names)]"),
        ("span(has, _AFTER, _HAS)", "span(had, _AFTER, _HAS)"),
    ),
    "operators/windows/fixed/processing_time.py": (
        ("BatchTime(batch_time.since, after", "BatchTime(MIN_TIME, after"),
        ("else batch_time.clock", "else batch_time.clock - 1"),
    ),
}
_BY_ROWS = (
    "operators/windows/by_rows/touched_windows.py",
    "operators/windows/by_rows/panes_kernel.py",
    "operators/windows/panes/clock_timers.py",
)
_SHARED = "operators/windows/panes/rows.py"
_FIXED_TESTS = [
    "tests/operators/windows/test_covered.py",
    "tests/operators/windows/panes/test_kernel.py",
    "tests/operators/windows/fixed/test_tumbling_kernel.py",
    "tests/operators/windows/fixed/test_tumbling_scale.py",
]
_ROW_TESTS = ["tests/operators/windows/by_rows/test_row_panes.py"]
TESTS = {
    "panes": (tuple(f for f in FAULTS if f not in (*_BY_ROWS, _SHARED)), _FIXED_TESTS),
    "row panes": (_BY_ROWS, _ROW_TESTS),
    "pane rows": ((_SHARED,), [*_ROW_TESTS, *_FIXED_TESTS]),
}
