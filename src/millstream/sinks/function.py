"""`Function`: user code as a sink, at least once."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import InvalidSpec, MillstreamError, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.sinks.spec import Opening, Staged, Writer

_PACKAGE = f"{Path(__file__).resolve().parent}/"


@dataclass(frozen=True, init=False)
class Function:
    """Passes rows to a function: `Function(lambda rows, intent, batch: …)`.

    The function runs on the driver, once per batch that has rows. It gets the rows as an Arrow
    table, the id of the intent and the number of the batch. When it returns, the batch counts as
    delivered; after a crash before that, it is called again with the same arguments. Its effects
    therefore happen at least once, and exactly once if it skips ids it has seen. If there are
    retractions, the table has a column `_sign` with −1 for them.
    """

    fn: Callable[[Any, str, int], object]
    name: str
    accepts_retractions: ClassVar[bool] = True

    def __init__(self, fn: Callable[[Any, str, int], object], name: str | None = None) -> None:
        if not callable(fn):
            raise InvalidSpec("Function needs a callable", got=repr(fn),
                              do="write Function(lambda rows, intent, batch: …)")  # fmt: skip
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "name", name or function_name(fn))

    @property
    def system(self) -> str:
        """Each function is its own system."""
        return f"function {self.name}"

    def writer(self, opening: Opening) -> Writer:
        """Return a writer that calls the function."""
        return FunctionWriter(opening)


class FunctionWriter:
    """Calls functions with the rows of a batch."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def recover(self, expected: str | None) -> str | None:
        """A function has no ledger: trust the last commit."""
        return expected

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Call the functions, one after another."""
        for staged in outputs:
            assert isinstance(staged.sink, Function)
            table = _rows(staged)
            self._opening.on_step("before a sink's commit")
            with user_function(staged):
                staged.sink.fn(table, intent, batch)
            self._opening.on_step("after a sink's commit")

    def close(self) -> None:
        """Nothing to close."""


def function_name(fn: Callable[..., object]) -> str:
    """The default name of an output that calls a function."""
    given = getattr(fn, "__name__", "function")
    return "function" if given == "<lambda>" else str(given)


@contextmanager
def user_function(staged: Staged) -> Iterator[None]:
    """Turn an error of an output's function into one that names it and the user's line."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        raise UserCodeFailed(
            f"the function {staged.sink.name!r} of the output {staged.output!r} raised "
            f"{type(error).__name__}: {error}",
            do=_user_line(error),
        ) from error


def _rows(staged: Staged) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    from millstream.sinks.rows import SIGN, columns_of

    table = pa.concat_tables(staged.tables())
    user = table.select(columns_of(table))
    if SIGN in table.column_names and pc.min(table[SIGN]).as_py() == -1:
        user = user.append_column(SIGN, table[SIGN])
    return user


def _user_line(error: Exception) -> str | None:
    """The line in the user's code: the first frame that is not in this package."""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(_PACKAGE):
            return f"see {frame.filename}:{frame.lineno}"
    return None
