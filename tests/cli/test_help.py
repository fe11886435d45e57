"""Help, version and completion."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
from tests.cli.command import COMMAND, Command

from millstream.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAVY = ("pyspark", "pyarrow", "confluent_kafka", "numpy", "pandas", "polars", "sqlglot", "rich")


ROOT: Any = typer.main.get_command(app)


def _commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(_commands()), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...], offline: Command) -> None:
    for flag in ("--help", "-h"):
        said = offline.ok(*path, flag)
        assert said.err == ""
        assert "Example" in said.out
        assert f"millstream {' '.join(path)}" in said.out.partition("Example")[2]
        assert "--debug" in said.out


@pytest.mark.parametrize(
    "words", [["--help"], ["tail", "--help"], ["version"], ["version", "-o", "json"]]
)
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from millstream.cli.main import app\n"
        f"try: app({words!r}, prog_name='millstream')\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_help_adds_little_to_the_start_of_the_interpreter_and_typer() -> None:
    def best(*words: str) -> float:
        """Seconds of CPU, the least of three runs: a busy machine makes no difference."""
        costs = []
        for _ in range(3):
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            costs.append(usage.ru_utime + usage.ru_stime)
        return min(costs)

    assert best(COMMAND, "--help") - best(sys.executable, "-c", "import typer.main") < 0.3


def test_no_command_shows_help_and_is_an_error(offline: Command) -> None:
    said = offline()
    assert (said.code, said.out) == (2, "")
    assert "Usage: millstream [OPTIONS] COMMAND" in said.err


def test_a_misspelled_command_gets_a_suggestion(offline: Command) -> None:
    said = offline("topcis", "list")
    assert said.code == 2
    assert said.err == (
        "error: no such command 'topcis'. Did you mean 'topics'?; see `millstream --help`\n"
    )


def test_version_is_for_people_and_programs(offline: Command) -> None:
    found = offline.ok("version", "-o", "json").json
    assert found["millstream"]
    assert f"pyspark          {found['pyspark']}\n" in offline.ok("version").out


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", {"COMP_WORDS": "millstream top", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "millstream top"}),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "millstream top", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
    ],
)
def test_the_shell_completes_commands(shell: str, line: dict[str, str]) -> None:
    def run(instruction: str) -> str:
        environment = {**os.environ, "_MILLSTREAM_COMPLETE": f"{instruction}_{shell}", **line}
        done = subprocess.run(
            [COMMAND], env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout

    assert "millstream" in run("source")
    assert "topics" in run("complete")
    assert "tail" not in run("complete")
