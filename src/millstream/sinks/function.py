"""`Function`: the user's own code as a sink, at least once."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import InvalidSpec, MillstreamError, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.sinks.spec import Opening, Staged, Writer


@dataclass(frozen=True, init=False)
class Function:
    """Rows handed to a function: `Function(lambda rows, intent, batch: …)`.

    It is called on the driver, once per batch that has rows: with an Arrow table of them, the id
    of the intent and the number of the batch. When it returns, the batch counts as delivered. A
    crash before that calls it again with the same rows, id and number: what it does happens at
    least once, and exactly once if it remembers the ids it has seen. Where rows take earlier ones
    back, the table has a column `_sign` with −1 for those.
    """

    fn: Callable[[Any, str, int], object]
    name: str
    accepts_retractions: ClassVar[bool] = True

    def __init__(self, fn: Callable[[Any, str, int], object], name: str | None = None) -> None:
        if not callable(fn):
            raise InvalidSpec("Function needs something to call", got=repr(fn),
                              do="write Function(lambda rows, intent, batch: …)")  # fmt: skip
        own = getattr(fn, "__name__", "function")
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "name", name or ("function" if own == "<lambda>" else own))

    @property
    def system(self) -> str:
        """Each function stands for itself."""
        return f"function {self.name}"

    def writer(self, opening: Opening) -> Writer:
        """Nothing is opened: the function knows what it talks to."""
        return FunctionWriter(opening)


class FunctionWriter:
    """Calls functions with a batch's rows."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def recover(self, expected: str | None) -> str | None:
        """Nobody remembers what a function has done: the last commit is believed."""
        return expected

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Call the functions, one after the other."""
        for staged in outputs:
            assert isinstance(staged.sink, Function)
            table = _rows(staged)
            self._opening.on_step("before a sink's commit")
            try:
                staged.sink.fn(table, intent, batch)
            except MillstreamError:
                raise
            except Exception as error:
                raise UserCodeFailed(
                    f"the function {staged.sink.name!r} of the output {staged.output!r} raised "
                    f"{type(error).__name__}: {error}",
                    do=_place(error),
                ) from error
            self._opening.on_step("after a sink's commit")

    def close(self) -> None:
        """Nothing is held."""


def _rows(staged: Staged) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    from millstream.sinks.rows import SIGN, columns_of

    table = pa.concat_tables(staged.tables())
    user = table.select(columns_of(table))
    if SIGN in table.column_names and pc.min(table[SIGN]).as_py() == -1:
        user = user.append_column(SIGN, table[SIGN])
    return user


def _place(error: Exception) -> str | None:
    """The user's line: the first one below our call."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f"see {frames[0].filename}:{frames[0].lineno}" if frames else None
