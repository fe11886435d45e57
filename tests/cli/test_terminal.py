"""What happens only at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.command import Command


def test_deleting_asks_and_a_no_keeps_the_topic(millstream: Command, clicks: str) -> None:
    question = f"delete {clicks} (up to 0 records)? [y/N]:"
    said = millstream.at_a_terminal("topics", "delete", clicks, typing=((question, "n\n"),))
    assert said.code == 1
    assert "error: stopped before anything was changed" in said.out.replace("\x1b[31m", "")
    millstream.ok("topics", "describe", clicks)

    said = millstream.at_a_terminal("topics", "delete", clicks, typing=((question, "y\n"),))
    assert said.code == 0
    assert millstream("topics", "describe", clicks).code == 4


def test_ctrl_c_at_a_question_keeps_the_topic(millstream: Command, clicks: str) -> None:
    said = millstream.at_a_terminal("topics", "delete", clicks, typing=(("[y/N]", "\x03"),))
    assert said.code == 130
    assert "Traceback" not in said.out
    millstream.ok("topics", "describe", clicks)


def test_a_typed_line_is_sent_at_once_and_a_bad_one_reported_at_once(
    millstream: Command, clicks: str
) -> None:
    said = millstream.at_a_terminal(
        "produce",
        clicks,
        "--partition",
        "0",
        typing=(
            ("Ctrl-D ends", "1\noops\n"),
            ("line 2 needs JSON; got 'oops'", "3\n\x04"),
        ),
    )
    assert said.code == 2
    assert f"sent 2 records to {clicks}" in said.out
    assert millstream.ok("tail", clicks, "--until-end", "--values").out == "1\n3\n"


def test_a_table_fits_the_terminal_and_is_bold_at_the_top(millstream: Command, clicks: str) -> None:
    del millstream.environment["NO_COLOR"]
    millstream.environment["COLUMNS"] = "60"
    said = millstream.at_a_terminal("topics", "list")
    assert "\x1b[1mTOPIC" in said.out
    assert "\x1b" not in millstream.at_a_terminal("topics", "list", "--no-color").out
