"""Sessions with triggers and a late policy, for `windows.run`: brute force over all rows of a key.

Where DESIGN leaves a choice, this is the one made here:

- A batch's rows and the sessions that are open or kept are joined wherever two of them are at
  most `gap` apart. What holds no earlier session and would already be gone is late, all of it.
- A session leaves when W > end, as the edge is closed; it is gone when W ≥ end + keep, and with
  keep zero when it leaves.
- A session that has left and that a late row makes end at or after W is open again: it leaves
  once more, on time, when W is beyond the new end.
- Of sessions that become one, the one that begins where the whole begins goes on: its row is
  replaced by the next pane. All others are absorbed: what stands of them is retracted at once,
  whatever the panes are, as `Pane(…, retract=True)`, whole; so is a session whose beginning
  moves. With discarding panes the next one shows the rows of absorbed sessions again.
- For `every`, a merged session's last firing is the latest of the two, its first row the earliest.
- A row one gap behind W is not late, and its session ends at W: what may still be emitted is
  never later than W - 1.
- Rows with sign -1 are not for here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.oracles.windows import Batch, Emitted, Group, Pane, fires, rank, show
from tests.oracles.windows_oracle import GREATEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.oracles.windows import Key, Policy, Row


@dataclass
class Sessions:
    """All sessions of all keys that are open or kept."""

    policy: Policy
    gap: int
    groups: dict[Key, list[Group]] = field(default_factory=dict)

    def step(self, batch: Batch) -> Emitted:
        """Take a batch in, then let leave what its watermark and clock allow."""
        out = Emitted()
        rows: dict[Key, list[Row]] = {}
        for row in batch.rows:
            rows.setdefault(self.policy.key(row), []).append(row)
        for key in sorted({*rows, *self.groups}, key=rank):
            joined = self._joined(self.groups.get(key, []), rows.get(key, []))
            kept = [group for part in joined for group in self._taken(part, batch, out)]
            self.groups[key] = [g for g in kept if self._closed(key, g, batch, out)]
        out.late.sort(key=lambda late: next(n for n, r in enumerate(batch.rows) if r is late[0]))
        out.held = GREATEST if batch.after == GREATEST else batch.after - 1
        out.panes.sort(key=lambda pane: (rank(pane.key), pane.end))
        return out

    def _joined(self, groups: list[Group], rows: list[Row]) -> list[list[Group | Row]]:
        """Sessions and rows, parted where more than `gap` lies between them."""
        parts: list[list[Group | Row]] = []
        end = -GREATEST
        things: list[Group | Row] = [*groups, *rows]
        for thing in sorted(things, key=lambda thing: self._span(thing)[0]):
            first, last = self._span(thing)
            if not parts or first - end > self.gap:
                parts.append([])
                end = last
            parts[-1].append(thing)
            end = max(end, last)
        return parts

    def _span(self, thing: Group | Row) -> tuple[int, int]:
        times = [row["_time"] for row in (thing.rows if isinstance(thing, Group) else [thing])]
        return min(times), max(times)

    def _taken(self, part: list[Group | Row], batch: Batch, out: Emitted) -> Iterable[Group]:
        groups = [thing for thing in part if isinstance(thing, Group)]
        rows = [thing for thing in part if not isinstance(thing, Group)]
        end = max(self._span(thing)[1] for thing in part) + self.gap
        start = min(self._span(thing)[0] for thing in part)
        if not groups and self._gone(end, batch.before):
            out.late += [(row, [(start, end)]) for row in rows]
            return []
        group = self._merged(groups, start, batch, out)
        group.take(rows)
        group.left = _beyond(end, batch.before)
        return [group]

    def _merged(self, groups: list[Group], start: int, batch: Batch, out: Emitted) -> Group:
        """One session of these, all but the first of them retracted."""
        merged = Group(since=batch.clock)
        for group in groups:
            merged.rows += group.rows
            merged.came += group.came
            merged.index = max(merged.index, group.index)
            if self._span(group)[0] == start:
                merged.shown, merged.flowed = group.shown, group.flowed
                merged.fresh += group.fresh
            else:
                merged.fresh += group.rows
                out.panes += [replace(pane, retract=True) for pane in group.shown]
                out.flow += [(-1, pane) for pane in group.flowed]
        if groups:
            fired = [group.since for group in groups if group.index]
            merged.since = max(fired) if fired else min(group.since for group in groups)
        return merged

    def _gone(self, end: int, watermark: int) -> bool:
        return watermark == GREATEST or watermark >= end + max(self.policy.keep, 1)

    def _closed(self, key: Key, group: Group, batch: Batch, out: Emitted) -> bool:
        """Let the session's pane leave, if one does; whether it is still remembered."""
        first, last = self._span(group)
        end = last + self.gap
        name = self._stage(group, end, batch)
        if name:
            pane = Pane(key, first, end, self.policy.answers(group.rows), name, group.index)
            show(out, self.policy, group, pane, batch.clock)
        return not self._gone(end, batch.after)

    def _stage(self, group: Group, end: int, batch: Batch) -> str | None:
        answers = self.policy.answers(group.rows)
        if not group.left:
            if _beyond(end, batch.after):
                return "on_time"
            return "early" if fires(self.policy.early, group, batch.clock, answers) else None
        over = bool(group.came) and self._gone(end, batch.after)
        return "late" if over or fires(self.policy.late, group, batch.clock, answers) else None


def _beyond(end: int, watermark: int) -> bool:
    return watermark == GREATEST or end < watermark
