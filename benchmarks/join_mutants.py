"""Faults planted in the kernels of joins, and the tests that must catch them."""

from __future__ import annotations

Pairs = tuple[tuple[str, str], ...]

FAULTS: dict[str, Pairs] = {
    "operators/joins/interval/kernel.py": (
        ("late &= times < theirs - upper", "late &= times <= theirs - upper"),
        ("late &= times < ours + lower - upper", "late &= times < ours - upper"),
        ("late &= times < ours + lower - upper", "late &= times <= ours + lower - upper"),
        ("if theirs < END_OF_TIME:", "if theirs <= END_OF_TIME:"),
        ("times >= after - self._reach.of[side][1]", "times > after - self._reach.of[side][1]"),
        ("before - self._reach.of[side][1]", "before - self._reach.of[side][1] - 1"),
        ("np.flatnonzero(alone & stays)", "np.flatnonzero(stays)"),
        ("pa.array(alone & ~stays)", "pa.array(~stays)"),
        ("rows = without_tombstones(both)", "rows = both"),
        ("deadline - upper", "deadline"),
        ("int(times.min())", "int(times.max())"),
        ("floors[OPEN[side]] = after", "floors[OPEN[side]] = END_OF_TIME"),
        ("yield from batch.pairs()", "yield from ()"),
        ("for side in (RIGHT, LEFT):", "for side in (RIGHT,):"),
        ("spec.on, timed=self._timed)", "spec.on, timed=False)"),
    ),
    "operators/joins/interval/pairs.py": (
        (
            "self.of = ((lower, upper), (-upper, -lower))",
            "self.of = ((lower, upper), (lower, upper))",
        ),
        ("highs = np.where(times > END_OF_TIME - lower, MIN_TIME, highs)", "pass"),
        ("lows = np.where(times < MIN_TIME - upper, END_OF_TIME, lows)", "pass"),
        ("right.match(lengths > 0)", "right.match(lengths > 1)"),
        ("lows, highs, times >= first)", "lows, highs)"),
        ("self.matched[side].append(", "self.matched[1 - side].append("),
        ("last[:-1] + 1", "last[:-1]"),
        ("np.where(same, np.maximum(first, asked), first)", "first + same * 0 + same"),
        ("same[1:] = asking.groups[1:] == asking.groups[:-1]", "same[1:] = True"),
        ("whole.append(rows if has.all() else rows.filter(pa.array(has)))", "whole.append(rows)"),
        ("np.ones(rows.num_rows, np.bool_)", "np.zeros(rows.num_rows, np.bool_)"),
    ),
    "operators/joins/matching.py": (
        ("sortable(highs) + np.uint64(1)", "sortable(highs)"),
        ("np.where(highs == END_OF_TIME, end, last)", "last"),
        ("times.view(np.uint64) ^ _SIGN_BIT", "times.view(np.uint64)"),
        ("np.cumsum(covered[:-1]) == 0", "covered[:-1] == 0"),
        ("times > END_OF_TIME - by", "times > END_OF_TIME"),
        ("times < MIN_TIME - by", "times < MIN_TIME"),
    ),
    "operators/joins/sides.py": (
        ("among + np.repeat(following, sizes)", "among"),
        ("int_values(plain(known[TWIN])) + 1", "int_values(plain(known[TWIN]))"),
        ("(source << 32) | partition", "partition"),
        ("return pa.int64()", "return kind"),
        ("whole &= pc.is_valid(key)", "whole |= pc.is_valid(key)"),
    ),
    "operators/joins/results.py": (
        ("stamps.cast(_STAMP)", "pa.nulls(count, _STAMP)"),
        ("name, side, own = column\n", "name, side, own = column[0], column[1], column[0]\n"),
        ("np.maximum.reduce", "np.minimum.reduce"),
        ("if found is None and side == LEFT and name in self._shared:", "if False:"),
        ("hash_longs(marks[0].view(np.int64), marks[1])", "marks[0]"),
        ("self._types[name] = wide", "pass"),
    ),
    "operators/joins/stream_table/as_of_kernel.py": (
        ("times >= after if", "times > after if"),
        ("part_late(rows, batch_time.before)", "part_late(rows, batch_time.before + 1)"),
        ("waits &= present(", "waits |= ~present("),
        ("at[~present(self._events.shared_keys(events), len(at))] = NOWHERE", "pass"),
        (
            "self._settled(changes, state, batch_time.after)",
            "self._settled(changes, state, END_OF_TIME)",
        ),
        ("bound == END_OF_TIME else bound + 1", "bound == END_OF_TIME else bound"),
        ("np.flatnonzero(times > bound)", "np.flatnonzero(times > bound + 1)"),
        ("moved(times[deleted], FORGET)", "times[deleted]"),
        ("np.setdiff1d(asked, changed)", "np.unique(asked)[:0]"),
        ("np.flatnonzero(needless != fresh)", "np.flatnonzero(fresh)"),
        ("np.isin(changed, wanted)", "changed < 0"),
    ),
    "operators/joins/stream_table/versions.py": (
        ("following <= bound", "following < bound"),
        ("following <= bound", "following <= bound + 1"),
        ("moved(self.times, FORGET) <= bound", "self.times <= bound"),
        ("sortable(times) + np.uint64(1)", "sortable(times)"),
        ("there[there] = self.alive[last[there]]", "pass"),
        (
            'PLACE = (AT, POSITION, "_offset", "_from", "_sub")',
            'PLACE = (AT, "_offset", POSITION, "_from", "_sub")',
        ),
        ('np.argsort(~gone, kind="stable")', 'np.argsort(gone, kind="stable")'),
        ("pc.fill_null(position, -(2**63))", "pc.fill_null(position, 2**63 - 1)"),
        ("pa.array(signs > 0)", "pa.array(signs != 0)"),
    ),
    "operators/joins/stream_table/lookup_kernel.py": (
        ("np.lexsort((given, *origin))", "np.lexsort((~given, *origin))"),
        ("np.lexsort((given, *origin))", "np.lexsort((*origin, given))"),
        ("np.where(given, len(found)", "np.where(given | True, len(found)"),
        ("np.where(found, np.arange(len(found)), NOWHERE)", "np.arange(len(found))"),
        ("np.where(present(keys, len(asked)), at[asked], NOWHERE)", "at[asked]"),
        ("int_values(plain(rows[SIGN])) < 0", "int_values(plain(rows[SIGN])) > 0"),
    ),
    "operators/joins/stream_table/enriched.py": (
        ("(origin >> 32)", "(origin >> 31)"),
        (
            "if every else np.flatnonzero(place != NOWHERE)",
            "if not every else np.arange(len(place))",
        ),
        ("events[AT] if timed", 'events["_offset"] if timed'),
    ),
    "operators/joins/table_table/kernel.py": (
        (
            "(-1, left.gone, right.gone), (+1, left.come, right.come)",
            "(+1, left.come, right.come), (-1, left.gone, right.gone)",
        ),
        ("yield from self._rows.products(sign, ours, theirs, cause=LEFT)", "pass"),
        ("yield from self._rows.products(sign, left.still, theirs, cause=RIGHT)", "pass"),
        (
            "same = mine.among(kept, asking[owners], changed.rows, ours)",
            "same = np.zeros(len(owners), np.bool_)",
        ),
        ("changed.filter(~had[changed.groups])", "changed"),
        ("mine.still.filter(~had[mine.still.groups])", "mine.still"),
        ("np.add.at(count, ours[changed.whole], signs)", "count[ours[changed.whole]] += signs"),
        ("(other.before, mine.gone) if sign < 0", "(other.before, mine.gone) if sign > 0"),
    ),
    "operators/joins/table_table/sides.py": (
        ("(first & ~given) | (last & given)", "~given | (last & given)"),
        ("(first & ~given) | (last & given)", "(first & ~given) | given"),
        ("np.lexsort((given, *origin, groups))", "np.lexsort((*origin, given, groups))"),
        ("rows = rows.filter(pa.array(changes.whole))", "pass"),
        ("np.where(lost, hash_keys(keys, count), hashes)", "hashes"),
        (
            "np.maximum.reduceat(places, starts) >= count",
            "np.minimum.reduceat(places, starts) >= count",
        ),
    ),
    "operators/joins/table_table/view_rows.py": (
        ("np.where(left.whole, last - first, 0)", "last - first"),
        ("if rows is None and name in self._shared:", "if False:"),
        ("np.full(count, sign, np.int8)", "np.ones(count, np.int8)"),
    ),
}
TESTS = {
    "interval join": (
        (
            "operators/joins/interval/kernel.py",
            "operators/joins/interval/pairs.py",
            "operators/joins/matching.py",
            "operators/joins/sides.py",
            "operators/joins/results.py",
        ),
        [
            "tests/operators/joins/interval/test_kernel.py",
            "tests/operators/joins/test_interval_scale.py",
        ],
    ),
    "as_of": (
        (
            "operators/joins/stream_table/as_of_kernel.py",
            "operators/joins/stream_table/versions.py",
        ),
        ["tests/operators/joins/stream_table/test_as_of_kernel.py"],
    ),
    "lookup": (
        (
            "operators/joins/stream_table/lookup_kernel.py",
            "operators/joins/stream_table/enriched.py",
        ),
        [
            "tests/operators/joins/stream_table/test_lookup_kernel.py",
            "tests/operators/joins/stream_table/test_as_of_kernel.py",
        ],
    ),
    "table join": (
        (
            "operators/joins/table_table/kernel.py",
            "operators/joins/table_table/sides.py",
            "operators/joins/table_table/view_rows.py",
        ),
        ["tests/operators/joins/table_table/test_kernel.py"],
    ),
}
