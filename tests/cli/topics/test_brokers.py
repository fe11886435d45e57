"""`up --brokers 3`, `brokers …`, `topics describe` and `down` on a cluster, as one types them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.cli.command import Command
from tests.kafka.shortly import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Command]:
    """The command in a new home."""
    command = Command(None, {"MILLSTREAM_HOME": str(tmp_path / "home")})
    yield command
    command("down")


def living_in(folder: Path) -> list[int]:
    """Processes whose working directory is in the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(folder)) and process.status() != "zombie":
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_cluster_from_up_to_down(newcomer: Command, tmp_path: Path) -> None:
    came = newcomer.ok("up", "--brokers", "3", "--only-broker", "-o", "json").json
    assert (came["brokers"], came["down"]) == (3, [])
    eventually(lambda: _up(newcomer) == [1, 2, 3], within=60)
    assert came["address"].count(",") == 2
    assert "starting" not in newcomer.ok("up", "--only-broker").err
    other = newcomer("up", "--brokers", "1", "--only-broker")
    assert (other.code, "got a cluster of several" in other.err) == (2, True)

    newcomer.ok("topics", "create", "clicks", "--partitions", "3")
    eventually(lambda: _is_spread(_described(newcomer)), within=60)
    described = _described(newcomer)
    assert described["controllers"] == [1, 2, 3]
    assert described["controller_in_charge"] in (1, 2, 3)

    os.kill(came["pids"][1], signal.SIGKILL)
    eventually(lambda: newcomer.ok("status", "-o", "json").json["down"] == [2], within=60)
    assert (
        "broker 2 is down; `millstream up` starts those that are down" in newcomer.ok("status").err
    )
    newcomer.ok("produce", "clicks", "--value", "1")
    eventually(lambda: _states(newcomer)[2] == "down", within=60)
    back = newcomer.ok("up", "--only-broker", "-o", "json")
    assert "starting the local broker 2" in back.err
    assert back.json["down"] == []
    eventually(lambda: _up(newcomer) == [1, 2, 3], within=60)
    assert newcomer.ok("tail", "clicks", "--until-end", "--values").out == "1\n"
    controller = newcomer("brokers", "remove", "1", "--yes")
    assert (controller.code, "one of the controllers" in controller.err) == (2, True)

    assert newcomer.ok("down").err.splitlines()[-1] == "the 3 local brokers have stopped"
    assert living_in(tmp_path) == []
    assert newcomer.ok("status", "-o", "json").json["running"] is False


def _up(command: Command) -> list[int]:
    up: list[int] = command.ok("status", "-o", "json").json["up"]
    return up


def _described(command: Command) -> dict[str, Any]:
    described: dict[str, Any] = command.ok("topics", "describe", "clicks", "-o", "json").json
    return described


def _is_spread(described: dict[str, Any]) -> bool:
    """Whether each broker leads a partition and has a replica of all."""
    parts = described["partitions"]
    return {part["leader"] for part in parts} == {1, 2, 3} and all(
        sorted(part["isr"]) == [1, 2, 3] for part in parts
    )


def _states(command: Command) -> dict[int, str]:
    rows = command.ok("brokers", "list", "-o", "json").json
    return {row["broker"]: row["state"] for row in rows}


def test_a_single_broker_is_listed_and_cannot_be_extended(millstream: Command) -> None:
    [row] = millstream.ok("brokers", "list", "-o", "json").json
    assert (row["broker"], row["state"], row["controller"]) == (1, "up", "in charge")
    said = millstream("brokers", "add")
    assert (said.code, "start one with `millstream up --brokers 3`" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "1,x"], "--to needs broker numbers separated by commas; got '1,x'"),
        (["--to", "7"], "a move needs brokers that are up; got broker 7; choose one of 1"),
        (["--to", "1", "--replicas", "2"], "at least as many brokers as replicas, 2"),
    ],
)
def test_an_impossible_move_is_refused(
    words: list[str], message: str, millstream: Command, clicks: str
) -> None:
    said = millstream("brokers", "move", clicks, *words)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert message in said.err
    assert "nothing to move" in millstream.ok("brokers", "move", clicks, "--to", "1").err


@pytest.mark.parametrize("number", ["0", "10"])
def test_an_invalid_number_of_brokers_is_refused(number: str, newcomer: Command) -> None:
    said = newcomer("up", "--only-broker", "--brokers", number)
    assert (said.code, "a local cluster has 1 to 9 brokers" in said.err) == (2, True)


def test_records_of_a_share_group_are_shown_once(millstream: Command, clicks: str) -> None:
    millstream.ok("produce", clicks, "--value", "1")
    first = millstream.ok("tail", clicks, "--share", clicks, "--limit", "1", "--values")
    millstream.ok("produce", clicks, "--value", "2")
    second = millstream.ok("tail", clicks, "--share", clicks, "--limit", "1", "-o", "json")

    assert first.out == "1\n"
    assert [record["value"] for record in second.records] == [2]


@pytest.mark.parametrize("words", [["-n", "3"], ["--from", "end"], ["--where", "a = 1"]])
def test_a_share_group_cannot_be_filtered(
    words: list[str], millstream: Command, clicks: str
) -> None:
    said = millstream("tail", clicks, "--share", "g", *words)
    assert (said.code, "--share needs to show every record it receives" in said.err) == (2, True)
