"""The edge of the program: every way a command can end becomes one sentence and an exit code.

0 done · 1 failure · 2 usage, bad input · 3 invalid pipeline or option · 4 not found
5 unavailable · 6 data gone · 130 Ctrl-C · 143 SIGTERM
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from millstream.cli.terminal.output import Screen, complain, screen, use_screen
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

INTERRUPTED, TERMINATED = 130, 143


class Terminated(BaseException):
    """SIGTERM arrived: unwinds like Ctrl-C, so that everything is closed on the way."""


_heard: list[int] = []


def hear_sigterm() -> None:
    """SIGTERM ends the command as cleanly as Ctrl-C does."""

    def end(number: int, _frame: FrameType | None) -> None:
        _heard.append(number)
        raise Terminated

    signal.signal(signal.SIGTERM, end)


class Guarded(TyperGroup):
    """The root command: runs any command and turns its end into an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line; with `standalone_mode` it ends the process."""

        def run() -> object:
            return super(Guarded, self).main(
                args=args,
                prog_name=prog_name,
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        use_screen(Screen.from_environment())
        code = exit_code_of(run)
        if standalone_mode:
            sys.exit(code)
        return code

    def invoke(self, ctx: Any) -> Any:
        """A reader that has left (`| head`) ends the command without a word."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            forget_stdout()
            raise typer.Exit(0) from None
        return result


def exit_code_of(run: Callable[[], object]) -> int:
    """Runs, says what went wrong, and gives the exit code."""
    try:
        result = run()
    except MillstreamError as error:
        return _failed(str(error), error.exit_code)
    except typer.TyperException as error:
        return _misused(error)
    except typer.Abort as no:
        if isinstance(no.__context__, KeyboardInterrupt):
            return INTERRUPTED
        return _failed("stopped before anything was changed", 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except Exception as error:
        return _unforeseen(error)
    return result if isinstance(result, int) else 0


def _unforeseen(error: Exception) -> int:
    """An error of ours; or a SIGTERM that came out of a C function as an error of that function."""
    if _heard:
        return TERMINATED
    return _failed(
        f"millstream met something it did not foresee: {type(error).__name__}: {error}; "
        "run the command again with --debug and report what it prints",
        1,
    )


def forget_stdout() -> None:
    """Nobody reads any more: what is still buffered goes nowhere instead of raising at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def _failed(sentence: str, code: int) -> int:
    if screen().debug:
        traceback.print_exc(file=sys.stderr)
    complain(sentence)
    return code


def _misused(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(message + "\n")
        return error.exit_code
    sentence = _unreadable(error) or message.rstrip(".")
    sentence = sentence[:1].lower() + sentence[1:]
    if context is not None:
        sentence += f"; see `{context.command_path} --help`"
    return _failed(sentence, error.exit_code)


def _unreadable(error: typer.TyperException) -> str | None:
    """`--last needs a valid integer; got 'x'`, where an option's value is of another type."""
    parameter, told = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if parameter is None or told is None:
        return None
    details = told()[0]
    name = max([*parameter.opts, *parameter.secondary_opts], key=len)
    need = str(details["msg"]).partition(",")[0].removeprefix("Input should be ")
    return f"{name} needs {need}; got {details['input']!r}"
