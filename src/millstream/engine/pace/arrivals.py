"""Wakes an idle run when records arrive in its sources."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.sources.spec import Watchable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sources.spec import Offsets, Ranges, Reader, Watch

_RETRY_SECONDS = 0.5


class Arrivals:
    """Watches the sources of a run, one thread for each."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers
        self._watchers: dict[str, _Watcher] | None = None

    def expect(self, waiting: Mapping[str, Ranges], wake: threading.Event) -> bool:
        """Set `wake` when there are records after these ranges. False if a source cannot be
        watched, or has records that wait already."""
        if any(b > a for ranges in waiting.values() for a, b in ranges.values()):
            return False
        if self._watchers is None:
            self._watchers = self._opened(wake)
        for name, watcher in self._watchers.items():
            watcher.expect({partition: end for partition, (_, end) in waiting[name].items()})
        return self._watchers.keys() == self._readers.keys()

    def close(self) -> None:
        """End all threads."""
        for watcher in (self._watchers or {}).values():
            watcher.close()

    def _opened(self, wake: threading.Event) -> dict[str, _Watcher]:
        found = {name: reader.watch() for name, reader in self._readers.items()
                 if isinstance(reader, Watchable)}  # fmt: skip
        return {name: _Watcher(name, watch, wake)
                for name, watch in found.items() if watch is not None}  # fmt: skip


class _Watcher:
    """Watches one source, once after each `expect`."""

    def __init__(self, name: str, watch: Watch, wake: threading.Event) -> None:
        self._watch, self._wake = watch, wake
        self._changed = threading.Condition()
        self._expected: Offsets | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)
        self._thread.start()

    def expect(self, ends: Offsets) -> None:
        with self._changed:
            if ends and ends != self._expected:
                self._expected = ends
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._over.set()
            self._changed.notify_all()
        self._watch.interrupt()
        self._thread.join(_RETRY_SECONDS)

    def _run(self) -> None:
        while (ends := self._next()) is not None:
            arrived = True
            try:
                arrived = self._watch.wait(ends)
            except Exception:  # the run asks the source itself, and reports its error
                self._over.wait(_RETRY_SECONDS)
            if arrived:
                self._found(ends)
        with suppress(Exception):
            self._watch.close()

    def _next(self) -> Offsets | None:
        """Wait for something to watch; None when closed."""
        with self._changed:
            while self._expected is None and not self._over.is_set():
                self._changed.wait()
            return None if self._over.is_set() else self._expected

    def _found(self, ends: Offsets) -> None:
        with self._changed:
            if self._expected == ends:
                self._expected = None
        self._wake.set()
