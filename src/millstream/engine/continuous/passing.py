"""The rows of one source on their way through this process, in a thread of its own.

    topic -- asked for what follows --> decoder --> steps as Arrow --> topics, acknowledged

What is behind in the log comes in large pieces, what has just been written in small ones. A
piece counts as passed when every row of it is acknowledged; only then does the next one follow.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.kafka.protocol.batch_headers import UnknownFormat
from millstream.sinks.spec import Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from millstream.errors import Unavailable
    from millstream.plan.graph import Output
    from millstream.sinks.kafka.plain_writer import PlainTopicWriter
    from millstream.sources.decode import RecordDecoder, Rows
    from millstream.sources.kafka.reader import TopicPrefetchReader, TopicReader
    from millstream.sources.spec import Offsets, Ranges
    from millstream.sql.arrow.values import ArrowSteps

_MOST = 4 << 20
_FEW = 256  # records of a piece that is over in a moment
_PATIENCE = 120.0
_AGAIN = 0.2
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Way:
    """From the rows of a source to one output; without steps they leave as they are."""

    output: Output
    steps: ArrowSteps | None

    def staged(self, rows: pa.Table) -> Staged:
        """The rows that leave."""
        made = rows if self.steps is None else self.steps(rows)
        return Staged(self.output.name, "result", self.output.sink, self.output.keys,
                      made.num_rows, lambda: iter((made,)))  # fmt: skip


@dataclass
class Passed:
    """What has passed since it was last asked for, and up to where."""

    at: Offsets
    counted: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    bad: list[pa.Table] = field(default_factory=list)


@dataclass(frozen=True)
class Heard:
    """Who is told: `bad` of the first bad rows of a piece, before any of it leaves, and may
    raise; `waiting` of what keeps the source waiting; `gone` says in a sentence that it was too
    long."""

    bad: Callable[[pa.Table], None]
    waiting: Callable[[str], None]
    gone: Callable[[str], Unavailable]


class Passing(threading.Thread):
    """One source, from these offsets on."""

    def __init__(
        self, reader: TopicReader, writer: PlainTopicWriter, decoder: RecordDecoder,
        ways: Sequence[Way], at: Mapping[int, int], heard: Heard,
    ) -> None:  # fmt: skip
        super().__init__(name="passing", daemon=True)
        self._reader, self._writer, self._decoder = reader, writer, decoder
        self._ways, self._heard = ways, heard
        self._prefetching: TopicPrefetchReader | None = None
        self._held, self._passed = threading.Lock(), Passed(dict(at))
        self._at, self._new = dict(at), dict[int, int]()
        self._sent: tuple[Rows, list[Staged]] | None = None
        self._over = threading.Event()
        self._error: BaseException | None = None

    # -- for who watches ------------------------------------------------------------------

    def check(self) -> None:
        """Raise what has ended it, if something has."""
        if self._error is not None:
            raise self._error

    def take(self) -> Passed:
        """What has passed since it was last taken."""
        with self._held:
            taken, self._passed = self._passed, Passed(dict(self._passed.at))
        return taken

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether all before these ends has passed."""
        with self._held:
            return all(self._passed.at.get(p, 0) >= end for p, end in ends.items())

    def widen(self, first: Mapping[int, int]) -> None:
        """Take partitions in that are new, from their beginning on."""
        with self._held:
            self._new = {p: at for p, at in first.items() if p not in self._at}

    def end(self) -> None:
        """End behind the piece in hand."""
        self._over.set()
        self.join(_END_SECONDS)

    # -- in the thread --------------------------------------------------------------------

    def run(self) -> None:
        """Pass piece after piece, until told to end."""
        try:
            self._writer.recover(None)
            while not self._over.is_set():
                self._pass_on()
            self._settle()
        except BaseException as error:
            self._error = error
        finally:
            self._writer.close()
            if self._prefetching is not None:
                self._prefetching.close()

    def _pass_on(self) -> None:
        """One piece: it is sent when the one before it is acknowledged, and counts when the next
        one is ready, or when none has come for a moment."""
        found = self._next()
        if found is None:
            self._settle()
            return
        ranges, raw = found
        after = self._at | {partition: end for partition, (_, end) in ranges.items()}
        if raw.num_rows > _FEW:
            self._ask(after)
        rows = self._decoder(raw)
        if rows.bad.num_rows:
            self._heard.bad(rows.bad)
        staged = [way.staged(rows.good) for way in self._ways]
        if raw.num_rows <= _FEW:
            self._ask(after)
        if not self._settle():
            return
        self._writer.post([one for one in staged if one.rows])
        self._at = after
        self._sent = rows, staged

    def _ask(self, at: Offsets) -> None:
        """Ask for what comes next before it is wanted: at once behind a large piece, so that the
        broker is busy with it meanwhile; behind a small one as late as an answer needs to come,
        for it has nothing of what is written after it was asked for."""
        if self._prefetching is not None:
            self._prefetching.ask(at, least=1, most=_MOST)

    def _settle(self) -> bool:
        """Count what was sent, once all of it is acknowledged.

        False, if some did not get through: then it is read and sent again.
        """
        if self._sent is None:
            return True
        (rows, staged), self._sent = self._sent, None
        got_through = self._writer.flush()
        with self._held:
            if not got_through:
                self._at = dict(self._passed.at)
                return False
            self._passed.at = dict(self._at)
            self._count(rows, staged)
        return True

    def _count(self, rows: Rows, staged: Sequence[Staged]) -> None:
        counted, report = self._passed.counted, rows.report
        counted.update(rows=report.rows, extra=report.extra, bytes=report.bytes)
        self._passed.written.update({one.output: one.rows for one in staged})
        if rows.bad.num_rows:
            self._passed.bad.append(rows.bad)

    def _next(self) -> tuple[Ranges, pa.Table] | None:
        """What follows, once there is something; None after a moment without.

        Raises:
            Unavailable: the broker has not answered for two minutes.
        """
        with self._held:
            self._at |= self._new
            self._new = {}
        at, until = dict(self._at), time.monotonic() + _PATIENCE
        while True:
            try:
                self._prefetching = self._prefetching or self._reader.prefetch_reader(
                    self._decoder.more
                )
                assert self._prefetching is not None
                return self._prefetching.wait(at, least=1, most=_MOST)
            except UnknownFormat:
                return self._otherwise(at)
            except OSError as error:
                if time.monotonic() > until:
                    raise self._heard.gone(str(error)) from error
                if self._over.wait(_AGAIN):
                    return None
                self._heard.waiting(str(error))

    def _otherwise(self, at: Offsets) -> tuple[Ranges, pa.Table] | None:
        """Logs of old brokers are read by librdkafka."""
        ends = self._reader.extent().end
        ranges = {p: (first, ends[p]) for p, first in at.items() if ends.get(p, first) > first}
        if not ranges:
            self._over.wait(_AGAIN)
            return None
        return ranges, self._reader.table(ranges, self._decoder.more)
