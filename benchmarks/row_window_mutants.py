"""Faults to plant in windows of rows, sliding windows, order and top: right and wrong.

`TESTS` says which tests have to notice the faults of which files.
"""

from __future__ import annotations

FAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "operators/windows/by_rows/delta_kernel.py": (
        (
            "climbing = ~hit & (right + 1 < len(least))",
            "climbing = ~hit & (right + 3 < len(least))",
        ),
        ("nodes += ~far(", "nodes += far("),
        ("words >= np.uint64(by))\n        below", "words > np.uint64(by))\n        below"),
        ("(most > value) & ", ""),
        ("(least < value) & ", ""),
        ("(most - value >= by) | (value - least >= by)", "most - value >= by"),
        ("if by >= 2**64:", "if by >= 2**63:"),
        ("np.append(values, values[-1:])", "np.append(values, values[:1])"),
        ("steps[steps >= beyond] = len(known)", "pass"),
        ("opens[known[opening & ~first]] = True", "opens[known[opening]] = True"),
        ("places[known[opening]] = True", "places[known] = True"),
        ("known & ~np.isnan(float_values(column))", "known"),
        ("math.ceil(by))", "math.floor(by))"),
        ("Decimal(repr(by)) if isinstance(by, float) else", ""),
    ),
    "operators/windows/by_rows/punctuated_kernel.py": (
        ("before = upto - closes", "before = upto"),
        ("outside = None if self._member else closes", "outside = None"),
        (
            "np.lexsort([is_marker, *reversed(columns)])",
            "np.lexsort([~is_marker, *reversed(columns)])",
        ),
        ("None, 0 if self._member else marks.true_count", "None, 0"),
        ("markers, 0 if self._member else markers.num_rows", "markers, 0"),
    ),
    "operators/windows/by_rows/cut_kernel.py": (
        ("ended = cut.ends > 0", "ended = cut.ends >= 0"),
        ("closed = numbers < cut.ends[key_of]\n", "closed = numbers <= cut.ends[key_of]\n"),
        (
            "forgotten = np.flatnonzero(keyed.kept & ended[keyed.key_of])",
            "forgotten = np.zeros(0, np.int64)",
        ),
        ("inside &= ~(keyed.kept & without_kept[keyed.key_of])", "pass"),
        (
            "floors={OPEN: order + 1, TIMES: min(held, batch_time.after)}",
            "floors={TIMES: min(held, batch_time.after)}",
        ),
        ("np.full(opened.num_rows, order + 1)", "np.full(opened.num_rows, order)"),
        ("if not finish:", "if finish:"),
        ("after = np.where(ended, NO_TIME, before)", "after = before.copy()"),
        ("np.where(had == NO_TIME, come, np.maximum(had, come))", "come"),
        (
            "(key_of[1:] != key_of[:-1]) | (numbers[1:] != numbers[:-1])",
            "numbers[1:] != numbers[:-1]",
        ),
    ),
    "operators/windows/open_times.py": (
        (
            "left = np.flatnonzero((before != after) & (before != NO_TIME))",
            "left = np.zeros(0, np.int64)",
        ),
        (
            "come = np.flatnonzero((before != after) & (after != NO_TIME))",
            "come = np.flatnonzero((before == NO_TIME) & (after != NO_TIME))",
        ),
        ("return self._gained([*forgotten, opened])", "return self._gained([opened])"),
        ("alive = without_tombstones(both)", "alive = both"),
    ),
    "operators/windows/by_rows/rows_kernel.py": (
        ("math.gcd(spec.n, spec.every)", "spec.every"),
        (
            "(seen - self.spec.n) // self.spec.every + 1)",
            "(seen - self.spec.n) // self.spec.every)",
        ),
        ("begun = -(-panes.after // self.spec.every)", "begun = panes.after // self.spec.every"),
        (
            "highs = np.minimum(lows + self.spec.n // self._pane, (first_of + counts)[of])",
            "highs = (first_of + counts)[of]",
        ),
        ("new[1:] |= numbers[1:] != numbers[:-1]", "pass"),
        ("np.flatnonzero(~panes.kept & ~old)", "np.flatnonzero(~old)"),
        ("np.flatnonzero(panes.kept & old)", "np.zeros(0, np.int64)"),
        ("last = np.maximum(0, seen - 1) // every * every", "last = seen // every * every"),
        ("(seen - last < self.spec.n)", "(seen - last <= self.spec.n)"),
    ),
    "operators/windows/folding.py": (
        ("counts[span] - 1 - place", "place + left[span]"),
        ("low[odd] += 1", "pass"),
        ("high[odd] -= 1", "pass"),
        ("longest.bit_length() - 1", "longest.bit_length() - 2"),
        ("(low >> 32)\n", "0\n"),
        ("high >= 2**31)", "high > 2**31)"),
        ("empty = None if self._known is None else", "empty = None if True else"),
    ),
    "operators/lateness.py": (
        ("gone = times < watermark", "gone = times <= watermark"),
        ("gone[:] = True", "pass"),
    ),
    "operators/windows/sliding/kernel.py": (
        (
            'orders_of(batch), batch_time.after, side="left"',
            'orders_of(batch), batch_time.after, side="right"',
        ),
        ("lows, asking + 1)", "lows, np.maximum(asking, lows + 1))"),
        ("MIN_TIME, times - self.spec.size + 1)", "MIN_TIME, times - self.spec.size)"),
        (
            'np.searchsorted(upto, wanted, side="right")',
            'np.searchsorted(upto, wanted, side="left")',
        ),
        ("self._cell_of(batch_time.before - 1)", "self._cell_of(batch_time.before - 1) - 1"),
        ("max(MIN_TIME, time - self.spec.size + 1)", "max(MIN_TIME, time - self.spec.size // 2)"),
        ("times.view(np.uint64) ^ _SIGN_BIT", "times.view(np.uint64)"),
        ("None if (signs == 1).all() else signs", "None"),
    ),
    "operators/windows/lifted.py": (
        ("rows = in_origin_order(rows)", "pass"),
        ('StateColumn(FIRST, pa.int64(), "min")', 'StateColumn(FIRST, pa.int64(), "max")'),
        (
            "self.answer(piece, plain(piece[FIRST]), plain(piece[LAST]))",
            "self.answer(piece, plain(piece[LAST]), plain(piece[LAST]))",
        ),
    ),
    "state/runs/lookup.py": (
        ('hashed, "right"', 'hashed, "left"'),
        ("taken = upto", "pass"),
        ("yield None, batch.slice(taken)", "yield None, batch.slice(batch.num_rows)"),
    ),
    "operators/waiting.py": (
        ('orders_of(batch), after, side="left"', 'orders_of(batch), after, side="right"'),
        ("twins += np.repeat(next_twin, counts)", "pass"),
        ("known + 1)", "known)"),
        (
            "np.arange(rows.num_rows) - np.repeat(starts, counts)",
            "np.zeros(rows.num_rows, np.int64)",
        ),
        ("firsts = np.flatnonzero(new)", "firsts = np.zeros(1, np.int64)"),
    ),
    "operators/top/kernel.py": (
        ("smaller = -ranks(", "smaller = ranks("),
        ("among < self.spec.n", "among <= self.spec.n"),
        ("taken if in_order else np.sort(taken)", "np.sort(taken)"),
        ("ties = () if sorted_by_origin else", "ties = () if True else"),
        ("windows = [plain(rows[name]) for name in WINDOW]", "windows = []"),
        ("kept = self._largest(staying)", "kept = staying"),
    ),
}
_CUT = [
    "tests/operators/windows/by_rows/test_delta.py",
    "tests/operators/windows/by_rows/test_punctuated.py",
]
_COUNTED = [
    "tests/operators/windows/test_folding.py",
    "tests/operators/windows/by_rows/test_rows.py",
]
_SCALE = "tests/operators/windows/by_rows/test_rows_scale.py"

TESTS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "cut": (
        (
            "operators/windows/by_rows/delta_kernel.py",
            "operators/windows/by_rows/punctuated_kernel.py",
            "operators/windows/by_rows/cut_kernel.py",
            "operators/windows/open_times.py",
            "operators/windows/lifted.py",
        ),
        _CUT,
    ),
    "counted": (
        ("operators/windows/by_rows/rows_kernel.py", "operators/windows/folding.py"),
        _COUNTED,
    ),
    "sliding": (
        ("operators/windows/sliding/kernel.py", "operators/lateness.py"),
        ["tests/operators/windows/sliding/test_sliding.py"],
    ),
    "waiting": (
        (
            "operators/waiting.py",
            "operators/lateness.py",
            "operators/top/kernel.py",
            "state/runs/lookup.py",
        ),
        ["tests/operators/ordered/test_spec.py", "tests/operators/top/test_spec.py", _SCALE],
    ),
}
