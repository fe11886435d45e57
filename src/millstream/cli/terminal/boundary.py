"""How a command ends: any error becomes one sentence and an exit code.

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
    """SIGTERM arrived: unwinds like Ctrl-C, so that everything is closed."""


_received: list[int] = []


def handle_sigterm() -> None:
    """Make SIGTERM end the command as cleanly as Ctrl-C does."""

    def end(number: int, _frame: FrameType | None) -> None:
        _received.append(number)
        raise Terminated

    signal.signal(signal.SIGTERM, end)


class Guarded(TyperGroup):
    """The root command: runs any command and turns its outcome into an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; with `standalone_mode` end the process."""

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
        """End the command without a message when the reader is gone (`| head`)."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_stdout()
            raise typer.Exit(0) from None
        return result


def exit_code_of(run: Callable[[], object]) -> int:
    """Run, report an error, and return the exit code."""
    try:
        result = run()
    except MillstreamError as error:
        return _failed(str(error), error.exit_code)
    except typer.TyperException as error:
        return _usage_error(error)
    except typer.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            return INTERRUPTED
        return _failed("stopped before anything was changed", 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except Exception as error:
        return _unexpected(error)
    return result if isinstance(result, int) else 0


def _unexpected(error: Exception) -> int:
    """An error in Millstream, or a SIGTERM that a C function reported as its own error."""
    if _received:
        return TERMINATED
    return _failed(
        f"unexpected error in millstream: {type(error).__name__}: {error}; "
        "run the command again with --debug and report what it prints",
        1,
    )


def discard_stdout() -> None:
    """Redirect stdout to null, so that flushing its buffer at exit does not raise."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return


def _failed(sentence: str, code: int) -> int:
    if screen().debug:
        traceback.print_exc(file=sys.stderr)
    complain(sentence)
    return code


def _usage_error(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(message + "\n")
        return error.exit_code
    sentence = _invalid_value(error) or message.rstrip(".")
    sentence = sentence[:1].lower() + sentence[1:]
    if context is not None:
        sentence += f"; see `{context.command_path} --help`"
    return _failed(sentence, error.exit_code)


def _invalid_value(error: typer.TyperException) -> str | None:
    """`--last needs a valid integer; got 'x'`, if an option's value is of another type."""
    parameter, errors = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if parameter is None or errors is None:
        return None
    details = errors()[0]
    name = max([*parameter.opts, *parameter.secondary_opts], key=len)
    need = str(details["msg"]).partition(",")[0].removeprefix("Input should be ")
    return f"{name} needs {need}; got {details['input']!r}"
