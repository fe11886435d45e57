"""What a sink is to the rest of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa


@runtime_checkable
class Sink(Protocol):
    """A value that names where rows go."""

    @property
    def name(self) -> str:
        """The default name of an output that ends here."""


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
    record key where the sink has one. `tables()` streams the files, never the whole.
    """

    output: str
    door: str
    sink: Sink
    keys: tuple[str, ...]
    rows: int
    tables: Callable[[], Iterator[pa.Table]]


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
