"""Each end of a command is one sentence and one exit code."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import typer

from millstream import errors
from millstream.cli.terminal import boundary
from millstream.cli.terminal.boundary import Terminated, exit_code_of
from millstream.cli.terminal.output import Screen, use_screen

if TYPE_CHECKING:
    from collections.abc import Callable


def raising(error: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


@pytest.fixture(autouse=True)
def _plain_screen() -> None:
    use_screen(Screen())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput("a number is needed", got="'x'", do="write 5"), 2),
        (errors.InvalidSpec("a size is needed", got="'x'"), 3),
        (errors.NotFound("the topic x does not exist"), 4),
        (errors.Unavailable("Kafka must answer"), 5),
        (errors.SetupFailed("Java is needed"), 5),
        (errors.DataGone("offset 3 must be there"), 6),
        (errors.AlreadyRunning("one broker per folder"), 1),
        (errors.MillstreamError("something else"), 1),
    ],
)
def test_a_millstream_error_gives_its_sentence_and_its_exit_code(
    error: errors.MillstreamError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(error)) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {error}\n")


def test_an_unexpected_error_asks_for_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of(raising(ZeroDivisionError("division by zero"))) == 1
    assert capsys.readouterr().err == (
        "error: unexpected error in millstream: ZeroDivisionError: division by zero;"
        " run the command again with --debug and report what it prints\n"
    )


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    use_screen(Screen(debug=True))
    assert exit_code_of(raising(errors.NotFound("no x"))) == 4
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_a_signal_ends_quietly(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(error)) == code
    assert capsys.readouterr() == ("", "")


def test_a_no_at_the_prompt_reports_that_nothing_was_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of(raising(typer.Abort())) == 1
    assert capsys.readouterr().err == "error: stopped before anything was changed\n"


def test_a_hostile_message_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(errors.NotFound("the topic \x1b[2J does not exist")))
    assert capsys.readouterr().err == "error: the topic \\x1b[2J does not exist\n"


@pytest.mark.parametrize(
    ("variables", "debug", "color"),
    [
        ({}, False, True),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({"MILLSTREAM_DEBUG": "1"}, True, True),
        ({"MILLSTREAM_DEBUG": "0"}, False, True),
    ],
)
def test_the_environment_applies_before_options(
    variables: dict[str, str], debug: bool, color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "MILLSTREAM_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = Screen.from_environment()
    assert (found.debug, found.color) == (debug, color)


def test_a_sigterm_that_a_c_function_reports_as_another_error_is_still_a_sigterm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "_received", [])
    before = signal.getsignal(signal.SIGTERM)
    boundary.handle_sigterm()

    def swap() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Terminated:
            raise TypeError("expected configuration property name") from None

    try:
        assert exit_code_of(swap) == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == ""
