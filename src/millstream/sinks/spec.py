"""What a sink is to the rest of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa


@runtime_checkable
class Sink(Protocol):
    """A value that names where rows go."""

    @property
    def name(self) -> str:
        """The default name of an output that ends here."""


Delivery = Literal["exactly_once", "at_least_once", "at_most_once"]


@runtime_checkable
class OpenSink(Sink, Protocol):
    """A sink that brings its own writer: what a sink from outside implements.

    `millstream.testing.SinkSuite` holds the checks that every such sink passes.
    """

    @property
    def system(self) -> str:
        """The outside system it belongs to, by a text that stays the same and holds no secret.

        Sinks with the same text share one writer: what a batch sends to them appears together.
        """

    def writer(self, opening: Opening) -> Writer:
        """A writer for one run of one job; it connects no earlier than in `recover`."""


@runtime_checkable
class Movable(Sink, Protocol):
    """A sink from outside whose place can be another: then a job can be rewound into it."""

    def into(self, suffix: str) -> Sink:
        """The same sink, with this at the end of its place's name."""


class Discard:
    """`ms.discard`: late rows are counted and dropped, because someone said so."""

    name = "discard"

    def __repr__(self) -> str:
        return "ms.discard"


discard = Discard()


@dataclass(frozen=True, slots=True)
class Staged:
    """One output's rows of one batch, on disk, ready to be sent.

    `door` says which rows: `result`, `late` or `dead`. `keys` are the columns of the
    record key where the sink has one. `tables()` streams the files, never the whole. `again` is
    the number of the rewind since which these rows are sent once more. Of a `table` the rows
    are changes: those with the sign −1 say what is gone.
    """

    output: str
    door: str
    sink: Sink
    keys: tuple[str, ...]
    rows: int
    tables: Callable[[], Iterator[pa.Table]]
    again: int | None = None
    table: bool = False


def _unheard(said: str) -> None:
    """Nobody listens."""


def _unquestioned() -> None:
    """Nobody else can be the owner."""


def _never_calm() -> float:
    """There is always something to do."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Opening:
    """What a writer is told of the run it is opened for.

    `job` is the job's own random id, `epoch` the number of this run: a higher one shuts lower
    ones out. `sinks` are all that the writer serves. With `take_over`, the sinks of another job
    may be taken from it. `delivery` is what the pipeline promises: only `at_least_once` writes
    without a ledger. `patience` is for how many seconds a system that does not answer is asked
    again; `waiting` hears meanwhile why. `owned` raises `Fenced` where a newer run owns the job;
    `told` hears the steps of the protocol, for tests. `calm` says for how many seconds the run
    has had nothing to do (0 while it reads, however slowly).
    """

    pipeline: str
    job: str
    epoch: int
    sinks: tuple[Sink, ...]
    take_over: bool = False
    delivery: Delivery = "exactly_once"
    patience: float = 120.0
    waiting: Callable[[str], None] = field(default=_unheard)
    owned: Callable[[], None] = field(default=_unquestioned)
    told: Callable[[str], None] = field(default=_unheard)
    calm: Callable[[], float] = field(default=_never_calm)


class Writer(Protocol):
    """One outside system opened for one run; it takes all outputs that end there.

    The engine promises: `recover` first, then `write` once per batch with rising
    numbers, a batch with the same `intent` again only after a crash. The writer
    promises: all of a batch's rows appear together, and a repeat changes nothing.
    """

    def recover(self, expected: str | None) -> str | None:
        """Shut earlier runs out, then tell the intent written last, if any.

        `expected` is what the last commit says was written: a writer that has lost
        it stops the job.
        """

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Send one batch's rows under the intent's id, all or nothing."""

    def close(self) -> None:
        """Let go of connections."""


class Check(Protocol):
    """Tells rows that a sink can never take: a plain value, which is sent to Spark's workers."""

    def __call__(self, rows: pa.Table) -> pa.Array | None:
        """Why each row cannot be taken, null where it can; None if all of them can."""


@runtime_checkable
class Refuses(Protocol):
    """A writer that knows beforehand which rows its system can never take.

    Those go to the dead-letter topic before a batch is prepared, instead of stopping the job.
    """

    def check(self, sink: Sink, keys: tuple[str, ...]) -> Check | None:
        """What holds for the next batch's rows, whose record key has these columns."""


@runtime_checkable
class Refreshed(Protocol):
    """A writer whose ledger is forgotten by the outside system when it is silent for long."""

    def refresh(self) -> None:
        """Write again what the ledger says, if that is long ago; called between batches."""


@runtime_checkable
class GoesBack(Protocol):
    """A writer that can take away what batches after a given one have written.

    `intent` is the last intent it had been sent up to that batch, if any.
    """

    def cannot_go_back(self, batch: int, intent: str | None) -> str | None:
        """Why it cannot; None if it can. Nothing is changed."""

    def go_back(self, batch: int, intent: str | None, mark: str) -> str | None:
        """Take it away, at once; a repeat changes nothing. Gives the intent written last as the
        ledger has it now: `mark`, or what it was."""


@runtime_checkable
class Occupied(Protocol):
    """A writer that can tell whether its places are new."""

    def holds(self) -> list[str]:
        """Those of its places that are there already, by name. Nothing is changed."""
