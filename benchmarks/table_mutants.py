"""Faults planted in the kernels of tables, and the tests that must catch them."""

from __future__ import annotations

Pairs = tuple[tuple[str, str], ...]

FAULTS: dict[str, Pairs] = {
    "operators/tables/current_kernel.py": (
        (
            'PLACE = ("_sub", "_source", "_partition", "_offset", POSITION, TIME)',
            'PLACE = ("_sub", "_source", "_partition", "_offset", TIME, POSITION)',
        ),
        (
            'PLACE = ("_sub", "_source", "_partition", "_offset", POSITION, TIME)',
            'PLACE = ("_sub", "_source", "_partition", POSITION, "_offset", TIME)',
        ),
        ("edge = before(batch_time.after, DAY)", "edge = before(batch_time.after, 0)"),
        ("edge = before(batch_time.after, DAY)", "edge = before(batch_time.before, DAY)"),
        ("{DELETED: edge}", "{}"),
        ("self._forgotten(state, edge), _forget(delta", "_forget(delta"),
        ("_forget(delta, gone & old)", "delta"),
        ("dead = delta.filter(pa.array(gone & ~old))", "dead = delta.filter(pa.array(gone))"),
        ("~_flags(known[ALIVE]) & (numbers(known[TIME]) < edge)", "~_flags(known[ALIVE])"),
        ("~_flags(known[ALIVE]) & (numbers(known[TIME]) < edge)", "numbers(known[TIME]) < edge"),
        ("dead = delta.filter(pa.array(gone & ~old))", "dead = delta.slice(0, 0)"),
        ("counts[1:] = reached[1:] > reached[:-1]", "counts[1:] = reached[1:] >= reached[:-1]"),
        ("np.arange(count) < met.fresh, met.owner", "np.arange(count) >= met.fresh, met.owner"),
        ("steps < met.fresh, met.owner[steps]", "steps >= met.fresh, met.owner[steps]"),
        ("(old != NONE) & alive[old]", "old != NONE"),
        ("np.where(alive[new], new, NONE)", "new"),
        ("np.where(_flags(known[ALIVE]), 1, -1)", "np.where(_flags(known[ALIVE]), 1, 1)"),
        ("mask=~alive)", "mask=alive)"),
        ("np.sort(last[last < met.fresh])", "np.sort(last)"),
        ("last[:-1] = sorted_owner[1:] != sorted_owner[:-1]", "last[:-1] = True"),
        ("np.where(known, values, MIN_TIME)", "values"),
        ("if not self.spec.each and", "if"),
    ),
    "operators/tables/transitions.py": (
        ("matters[both] = self._differ(self.old[both], self.new[both], columns)", "pass"),
        ("gone * 2, come * 2 + 1", "gone * 2 + 1, come * 2"),
        ("np.full(len(gone), -1), np.ones(len(come))", "np.ones(len(gone)), np.ones(len(come))"),
        ("self.cause[gone], self.cause[come]", "self.old[gone], self.cause[come]"),
    ),
    "operators/tables/aggregate_kernel.py": (
        ("np.where(_rows_of(after) != 0, new, NONE)", "new"),
        ("if not empty.num_rows:", "if True:"),
        ("rows = _known_by(rows, self._row_keys)", "pass"),
        ('StateColumn("_at", pa.int64(), "max")', 'StateColumn("_at", pa.int64(), "min")'),
    ),
    "operators/tables/database_kernel.py": (
        ("rows = _deleted_before(rows, known)", "pass"),
        ("less |= equal & (column < value)", "less |= column < value"),
        ("follows[order] = has_row[last] & (owner[last] == owner)", "follows[order] = True"),
        ("changed[name] = np.where(is_change, numbers(rows[name]), learnt)", "pass"),
        ("changed[of_state] = own[final][met.owner]", "pass"),
        ("missing & known, steps[before], steps", "missing & ~known, steps[before], steps"),
        ("~missing[before] & (met.owner[steps[before]] == met.owner[steps])", "~missing[before]"),
        ("gained = self._as_state(cleared, state[CLEARED])",
         "gained = self._as_state(cleared, state[CLEARED]).slice(0, 0)"),
        ("(known is not None and known > come) else come", "False else come"),
        ("parts += [part.select(names)", "[part.select(names)"),
    ),
    "operators/tables/changelog_kernel.py": (
        ("groups = Groups.of(_by_change(rows), [*self._keys, *ORIGIN])",
         "groups = Groups.of(_by_change(rows), self._keys)"),
        ("np.where(made, 0, int_values(plain(rows[name])))", "int_values(plain(rows[name]))"),
        ("np.where(changes.new == NONE, changes.old, changes.new)", "changes.new"),
    ),
    "operators/tables/fold_kernel.py": (
        ("np.maximum.at(times, owners, int_values(plain(known[AT])))", "pass"),
        ("dict(self.spec.start) if had is None else had", "dict(self.spec.start)"),
        ("for n in ORIGIN[::-1]", "for n in ORIGIN"),
    ),
    "operators/tables/debezium.py": (
        ("from_key >= 0, count + from_key", "from_key >= 9, count + from_key"),
        ("_POSITION_BITS = 40", "_POSITION_BITS = 0"),
        ('pc.coalesce(source["ts_ms"], events["ts_ms"])', 'events["ts_ms"]'),
        ("(signs == 1) & pc.is_null(after)", "(signs == 5) & pc.is_null(after)"),
    ),
}  # fmt: skip
TESTS = {
    "tables": (
        (
            "operators/tables/current_kernel.py",
            "operators/tables/transitions.py",
            "operators/tables/aggregate_kernel.py",
            "operators/tables/changelog_kernel.py",
            "operators/tables/fold_kernel.py",
        ),
        [
            "tests/operators/tables/test_current_kernel.py",
            "tests/operators/tables/test_aggregate_kernel.py",
        ],
    ),
    "debezium": (
        ("operators/tables/database_kernel.py", "operators/tables/debezium.py"),
        ["tests/operators/tables/test_debezium.py"],
    ),
}
