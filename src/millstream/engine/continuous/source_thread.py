"""A thread that processes the rows of one source.

    topic -- fetch requests --> decoder --> steps as Arrow --> topics, acknowledged

A backlog is read in large pieces, new records in small ones. A piece is done when all its rows are
acknowledged; only then is the next one sent.
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
_FEW = 256  # records of a piece that is processed in a moment
_TIMEOUT = 120.0
_RETRY_SECONDS = 0.2
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Route:
    """From the rows of a source to one output; without steps they are sent unchanged."""

    output: Output
    steps: ArrowSteps | None

    def staged(self, rows: pa.Table) -> Staged:
        """The rows to send."""
        made = rows if self.steps is None else self.steps(rows)
        return Staged(self.output.name, "result", self.output.sink, self.output.keys,
                      made.num_rows, lambda: iter((made,)))  # fmt: skip


@dataclass
class Progress:
    """What was processed since the last call of `take`, and up to which offsets."""

    at: Offsets
    counted: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    bad: list[pa.Table] = field(default_factory=list)


@dataclass(frozen=True)
class Callbacks:
    """`on_bad` gets the bad rows of a piece before any of it is sent, and may raise; `on_wait` why
    the source waits, and `on_answer` is called when that is over; `unavailable` makes the error
    after too long a wait."""

    on_bad: Callable[[pa.Table], None]
    on_wait: Callable[[str], None]
    on_answer: Callable[[], None]
    unavailable: Callable[[str], Unavailable]


class SourceThread(threading.Thread):
    """Processes one source, from these offsets on."""

    def __init__(
        self, reader: TopicReader, writer: PlainTopicWriter, decoder: RecordDecoder,
        routes: Sequence[Route], at: Mapping[int, int], callbacks: Callbacks,
    ) -> None:  # fmt: skip
        super().__init__(name="continuous", daemon=True)
        self._reader, self._writer, self._decoder = reader, writer, decoder
        self._routes, self._callbacks = routes, callbacks
        self._prefetching: TopicPrefetchReader | None = None
        self._lock, self._progress = threading.Lock(), Progress(dict(at))
        self._at, self._new = dict(at), dict[int, int]()
        self._sent: tuple[Rows, list[Staged]] | None = None
        self._ending = threading.Event()
        self._error: BaseException | None = None

    # -- for other threads ----------------------------------------------------------------

    def check(self) -> None:
        """Raise the error that ended the thread, if one has."""
        if self._error is not None:
            raise self._error

    def take(self) -> Progress:
        """The progress since the last call."""
        with self._lock:
            taken, self._progress = self._progress, Progress(dict(self._progress.at))
        return taken

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether all rows before these ends are processed."""
        with self._lock:
            return all(self._progress.at.get(p, 0) >= end for p, end in ends.items())

    def add_partitions(self, first: Mapping[int, int]) -> None:
        """Add new partitions, from their beginning on."""
        with self._lock:
            self._new = {p: at for p, at in first.items() if p not in self._at}

    def end(self) -> None:
        """End after the current piece."""
        self._ending.set()
        self.join(_END_SECONDS)

    # -- in the thread --------------------------------------------------------------------

    def run(self) -> None:
        """Process piece after piece until `end()`."""
        try:
            self._writer.recover(None)
            while not self._ending.is_set():
                self._process()
            self._settle()
        except BaseException as error:
            self._error = error
        finally:
            self._writer.close()
            if self._prefetching is not None:
                self._prefetching.close()

    def _process(self) -> None:
        """Process one piece: it is sent once the previous one is acknowledged, and counted when the
        next one is ready or none arrives for a moment."""
        found = self._next()
        if found is None:
            self._settle()
            return
        ranges, raw = found
        after = self._at | {partition: end for partition, (_, end) in ranges.items()}
        if raw.num_rows > _FEW:
            self._request(after)
        rows = self._decoder(raw)
        if rows.bad.num_rows:
            self._callbacks.on_bad(rows.bad)
        staged = [route.staged(rows.good) for route in self._routes]
        if raw.num_rows <= _FEW:
            self._request(after)
        if not self._settle():
            return
        self._writer.post([one for one in staged if one.rows])
        self._at = after
        self._sent = rows, staged

    def _request(self, at: Offsets) -> None:
        """Request the next records in advance: right after a large piece, so that the broker works
        on it meanwhile; after a small one as late as possible, because the answer lacks records
        that are written later."""
        if self._prefetching is not None:
            self._prefetching.ask(at, least=1, most=_MOST)

    def _settle(self) -> bool:
        """Count the piece that was sent, once all of it is acknowledged.

        False if sending failed: then it is read and sent again.
        """
        if self._sent is None:
            return True
        (rows, staged), self._sent = self._sent, None
        acknowledged = self._writer.flush()
        with self._lock:
            if not acknowledged:
                self._at = dict(self._progress.at)
                return False
            self._progress.at = dict(self._at)
            self._count(rows, staged)
        return True

    def _count(self, rows: Rows, staged: Sequence[Staged]) -> None:
        counted, report = self._progress.counted, rows.report
        counted.update(rows=report.rows, extra=report.extra, bytes=report.bytes)
        self._progress.written.update({one.output: one.rows for one in staged})
        if rows.bad.num_rows:
            self._progress.bad.append(rows.bad)

    def _next(self) -> tuple[Ranges, pa.Table] | None:
        """The next records; None if none arrive for a moment.

        Raises:
            Unavailable: the broker has not answered for two minutes.
        """
        with self._lock:
            self._at |= self._new
            self._new = {}
        at, until, waited = dict(self._at), time.monotonic() + _TIMEOUT, False
        while True:
            try:
                self._prefetching = self._prefetching or self._reader.prefetch_reader(
                    self._decoder.more
                )
                assert self._prefetching is not None
                found = self._prefetching.wait(at, least=1, most=_MOST)
            except UnknownFormat:
                return self._read_old_format(at)
            except OSError as error:
                if time.monotonic() > until:
                    raise self._callbacks.unavailable(str(error)) from error
                if self._ending.wait(_RETRY_SECONDS):
                    return None
                waited = True
                self._callbacks.on_wait(str(error))
            else:
                if waited:
                    self._callbacks.on_answer()
                return found

    def _read_old_format(self, at: Offsets) -> tuple[Ranges, pa.Table] | None:
        """Read a log of an old broker with librdkafka."""
        ends = self._reader.extent().end
        ranges = {p: (first, ends[p]) for p, first in at.items() if ends.get(p, first) > first}
        if not ranges:
            self._ending.wait(_RETRY_SECONDS)
            return None
        return ranges, self._reader.table(ranges, self._decoder.more)
