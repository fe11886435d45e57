"""Faults planted in the kernels of fixed windows with panes, and the tests that must catch them."""

from __future__ import annotations

Pairs = tuple[tuple[str, str], ...]

FAULTS: dict[str, Pairs] = {
    "windows/aggregation.py": (
        ("groups if rows.all() else", "groups if rows.any() else"),
        ("groups.slice(first, each)", "groups.slice(first, each - 1)"),
        ("None if (signs == 1).all() else signs", "None"),
        ('"_time": pa.array(ends - 1)', '"_time": pa.array(ends)'),
    ),
    "windows/layout.py": (
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
    "windows/sliced_kernel.py": (
        ("np.clip(opened - begin, 0, counts)", "np.clip(opened - begin - 1, 0, counts)"),
        ("np.flatnonzero(counts > gone)", "np.flatnonzero(counts >= gone)"),
        ("begin = np.maximum(begin, first)", "begin = begin"),
        ("np.minimum(begin + counts, last)", "begin + counts"),
        ("(counts == 0).sum()", "(counts == 1).sum()"),
        ("last * self._layout.every", "first * self._layout.every"),
        ("last * self._layout.every", "last * self._layout.every + 1"),
    ),
    "windows/firing.py": (
        ("groups.since + period", "groups.since + period + 1"),
        ("groups.new >= rows", "groups.new > rows"),
        ("np.where(groups.new > 0, at, END_OF_TIME)", "at"),
        ("np.minimum.reduce", "np.maximum.reduce"),
        ("np.maximum.reduce", "np.minimum.reduce"),
    ),
    "windows/pane_state.py": (
        ("np.where(fires, 0, numbers(groups, ARRIVED))", "numbers(groups, ARRIVED)"),
        ("(fires & standing)", "fires"),
        ("np.where(fires, clock, numbers(groups, SINCE))", "numbers(groups, SINCE)"),
        ("mask=~standing", "mask=standing"),
        ("pa.array(np.full(count, clock))", "pa.array(np.full(count, clock + 1))"),
        ('column.combine in ("sum", "dsum")', 'column.combine == "dsum"'),
    ),
    "windows/pane_rows.py": (
        ("(labels == ON_TIME) | (labels == LATE)", "labels == ON_TIME"),
        ("standing, labels == LATE)", "standing, labels == ON_TIME)"),
        ("numbers(earlier, PANES) - 1", "numbers(earlier, PANES)"),
        ("standing + 0.5", "standing - 0.5"),
    ),
    "windows/panes_kernel.py": (
        ("at <= clock) | forgotten", "at <= clock)"),
        ("early = ~ended & (at <= clock)", "early = ~ended & (at < clock)"),
        ("on_time = ended & ~left", "on_time = ended"),
        ("clock + 1)]", "clock)]"),
        ("decided.stays & ~decided.fires & (decided.at < END_OF_TIME)", "decided.fires"),
        ("windows < first_open(moment.before)", "windows < first_open(moment.after)"),
        ("outside &= (orders < low)", "outside &= (orders <= low)"),
        ('shown=kind == "retracting" or keep > 0', 'shown=kind == "retracting"'),
    ),
    "windows/processing.py": (
        ("Moment(moment.since, after", "Moment(MIN_TIME, after"),
        ("else moment.clock", "else moment.clock - 1"),
    ),
}
TESTS = {
    "panes": (tuple(FAULTS), ["tests/windows/test_panes_kernel.py",
                              "tests/windows/test_tumbling_kernel.py",
                              "tests/windows/test_tumbling_scale.py"]),
}  # fmt: skip
