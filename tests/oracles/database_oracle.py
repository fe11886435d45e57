"""A database in plain Python, and the topic that Debezium would write of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

Row = dict[str, Any]
Record = tuple[bytes | None, bytes | None]
UNAVAILABLE = "__debezium_unavailable_value"


@dataclass
class Database:
    """One table, changed at random; `log` has its events as records (key, value)."""

    choose: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    log: list[Record] = field(default_factory=list)
    lsn: int = 100
    now: int = 1_000

    def work(self, steps: int) -> None:
        """So many changes of random kinds."""
        for _ in range(steps):
            self.now += self.choose.randrange(3)
            self.lsn += self.choose.randrange(1, 5)
            kind = self.choose.random()
            if kind < 0.02:
                self.truncate()
            elif kind < 0.3 and self.rows:
                self.delete(self.choose.choice(sorted(self.rows)))
            elif kind < 0.6 and self.rows:
                self.update(self.choose.choice(sorted(self.rows)))
            else:
                self.insert(self.choose.randrange(8))

    def insert(self, key: int) -> None:
        """A new row, or a delete and an insert in one transaction."""
        if key in self.rows:
            self.delete(key)
        self.rows[key] = {"id": key, "name": self._name(), "big": self._name()}
        self._event("c", key, after=dict(self.rows[key]))

    def update(self, key: int) -> None:
        """A row changes; what did not change of a large value is not in the log."""
        self.rows[key]["name"] = self._name()
        after = dict(self.rows[key])
        if self.choose.random() < 0.5:
            after["big"] = UNAVAILABLE
        else:
            self.rows[key]["big"] = after["big"] = self._name()
        self._event("u", key, after=after)

    def delete(self, key: int) -> None:
        """A row goes; what `before` holds beside the key is invented."""
        del self.rows[key]
        self._event("d", key, before={"id": key, "name": "", "big": None})
        self.log.append((_key(key), None))

    def truncate(self) -> None:
        """All rows go."""
        self.rows.clear()
        self.log.append((None, self._envelope("t", None, None)))

    def read_again(self) -> None:
        """An incremental snapshot: every row as it is, without a place in the log."""
        self.now += 1
        for key, row in sorted(self.rows.items()):
            self.log.append((_key(key), self._envelope("r", None, dict(row), lsn=None)))
        self.now += 1

    def replayed(self) -> list[Record]:
        """The topic after restarts of the connector: parts of the log are there again."""
        records, at = [], 0
        while at < len(self.log):
            size = self.choose.randrange(1, 40)
            records += self.log[at : at + size]
            at += size
            if at < len(self.log) and self.choose.random() < 0.4:
                at = max(0, at - self.choose.randrange(1, 25))
        return records

    def _event(
        self, op: str, key: int, before: Row | None = None, after: Row | None = None
    ) -> None:
        self.log.append((_key(key), self._envelope(op, before, after)))

    def _envelope(
        self, op: str, before: Row | None, after: Row | None, lsn: int | None = 0
    ) -> bytes:
        source = {"ts_ms": self.now, "lsn": self.lsn if lsn == 0 else lsn, "snapshot": "false"}
        self.lsn += 1
        body = {"op": op, "before": before, "after": after, "source": source,
                "ts_ms": self.now + 50}  # fmt: skip
        return json.dumps(body).encode()

    def _name(self) -> str:
        return self.choose.choice("abcdefgh") * self.choose.randrange(1, 4)


def without_deletes(records: list[Record]) -> list[Record]:
    """The topic after compaction: of deletes that a tombstone follows only that is left."""
    kept = []
    for place, (key, value) in enumerate(records):
        last = place + 1 < len(records) and records[place + 1] == (key, None)
        if not (last and value is not None and json.loads(value)["op"] == "d"):
            kept.append((key, value))
    return kept


def _key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()
