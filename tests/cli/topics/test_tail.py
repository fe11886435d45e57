"""`millstream tail` on a real broker: what is there, what comes, and how it ends."""

from __future__ import annotations

import json
import select
import signal
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING

import pytest

from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    import subprocess

    from tests.cli.command import Command

    from millstream.testing.local_broker import ThrowAwayBroker

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def orders(broker: ThrowAwayBroker, topic: str, count: int = 20) -> None:
    """Orders 0 … count − 1, one a minute from noon, in turn over the two partitions."""
    with Producer(broker.address) as producer:
        for n in range(count):
            producer.send(
                topic,
                {"n": n, "shop": {"country": "de" if n % 2 else "fr"}},
                key=f"user-{n % 4}",
                partition=n % 2,
                timestamp=NOON + timedelta(minutes=n),
                headers={"trace": str(n)},
            )


def numbers(records: list[dict[str, object]]) -> list[int]:
    return [record["value"]["n"] for record in records]  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], range(10, 20)),
        (["-n", "3"], [17, 18, 19]),
        (["-n", "100"], range(20)),
        (["-n", "0"], []),
        (["--from-beginning"], range(20)),
        (["--from", "beginning"], range(20)),
        (["--from", "end"], []),
        (["--from", "2026-01-01T12:15"], range(15, 20)),
        (["--from", "2026-01-01T14:15+02:00"], range(15, 20)),
        (["--from", "-1h"], []),
        (["--from", "@8"], range(16, 20)),
        (["--from-beginning", "--partition", "1"], range(1, 20, 2)),
        (["--from-beginning", "--key", "user-3"], range(3, 20, 4)),
        (["--from-beginning", "--where", "n >= 5 and shop.country = 'fr'"], range(6, 20, 2)),
        (["--from-beginning", "--where", "_headers.trace in ('3', '4')"], [3, 4]),
        (["--from-beginning", "--where", "_timestamp < '2026-01-01T12:02'"], [0, 1]),
        (["-n", "2", "--where", "n < 4"], [2, 3]),
        (["--from-beginning", "--partition", "0", "--limit", "2"], [0, 2]),
    ],
)
def test_tail_starts_at_the_given_position_and_shows_selected_records(
    words: list[str],
    expected: list[int],
    millstream: Command,
    broker: ThrowAwayBroker,
    clicks: str,
) -> None:
    orders(broker, clicks)
    said = millstream.ok("tail", clicks, "--until-end", "-o", "json", *words)
    assert sorted(numbers(said.records)) == list(expected)


def test_the_last_records_of_all_partitions_are_shown_by_time(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    orders(broker, clicks)
    said = millstream.ok("tail", clicks, "--no-follow", "-o", "json", "-n", "6")
    assert numbers(said.records) == [14, 15, 16, 17, 18, 19]


def test_markers_of_transactions_do_not_count_as_records(millstream: Command, clicks: str) -> None:
    for n in range(4):
        millstream.ok("produce", clicks, "-p", "0", stdin=f"{n}\n{n}\n")
    said = millstream.ok("tail", clicks, "--no-follow", "-n", "5", "--values")
    assert said.out.split() == ["1", "2", "2", "3", "3"]


def test_a_record_is_whole_in_json_and_one_line_for_people(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    orders(broker, clicks, 2)
    [record] = millstream.ok("tail", clicks, "-n1", "--until-end", "-o", "json").records
    assert record == {
        "topic": clicks,
        "partition": 1,
        "offset": 0,
        "timestamp": "2026-01-01T12:01:00.000000Z",
        "key": "user-1",
        "value": {"n": 1, "shop": {"country": "de"}},
        "headers": [{"name": "trace", "value": "1"}],
    }
    assert millstream.ok("tail", clicks, "-n1", "--until-end").out == (
        '2026-01-01 12:01:00.000  1@0       user-1  {"n":1,"shop":{"country":"de"}}  trace=1\n'
    )
    hexadecimal = millstream.ok("tail", clicks, "-n1", "--until-end", "-f", "hex", "--values").out
    assert bytes.fromhex(hexadecimal) == b'{"n":1,"shop":{"country":"de"}}'


def test_records_excluded_by_a_filter_are_counted(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    orders(broker, clicks, 6)
    millstream.ok("produce", clicks, "-f", "text", "--value", "not json")
    said = millstream.ok("tail", clicks, "--from-beginning", "--until-end", "-w", "n < 2")
    assert len(said.out.splitlines()) == 2
    assert said.err == (
        "2 of 7 records shown; in 1 a field of --where was missing, null or of another type\n"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "soon"], "--from needs a point in time; got 'soon'"),
        (["--from", "-1h", "-n", "3"], "tail needs one start position"),
        (["-n", "-3"], "-n needs a number from 0 on; got -3"),
        (["--limit", "0"], "--limit needs a number from 1 on; got 0"),
        (["--where", "price >"], "--where needs a name or a value at character 8; got the end"),
        (["--where", "__import__('os')"], "at character 11; got `(`"),
        (["--partition", "9"], "has, 0 to 1; got 9"),
        (["--format", "xml"], "'xml'"),
        (["-o", "yaml"], "'yaml'"),
        (["--values", "-o", "json"], "tail needs one output format"),
        (["--from", "@99"], "offset"),
    ],
)
def test_a_bad_option_is_one_sentence_and_exit_2(
    words: list[str], sentence: str, millstream: Command, clicks: str
) -> None:
    said = millstream("tail", clicks, *words)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
    assert sentence in said.err


def test_records_deleted_by_retention_are_reported(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    from millstream.kafka.admin.topics import Topics

    orders(broker, clicks)
    Topics(broker.address).truncate(clicks, {0: 5})
    said = millstream("tail", clicks, "--from", "@2", "--until-end", "-p", "0")
    assert (said.code, said.out) == (6, "")
    assert f"partition 0 of {clicks} needs to hold offset 2" in said.err


def line_from(stream: IO[bytes] | None, seconds: float = 15) -> bytes:
    assert stream is not None
    ready, _, _ = select.select([stream], [], [], seconds)
    assert ready, "no line came"
    return stream.readline()


def ended(process: subprocess.Popen[bytes], seconds: float = 15) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def test_tail_follows_until_ctrl_c_ends_it_quietly(millstream: Command, clicks: str) -> None:
    millstream.ok("produce", clicks, "--value", "0")
    with millstream.process("tail", clicks, "-o", "json") as process:
        for n in range(3):
            assert json.loads(line_from(process.stdout))["value"] == n
            millstream.ok("produce", clicks, "--value", str(n + 1))
        assert json.loads(line_from(process.stdout))["value"] == 3
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, b"", b"")


def test_sigterm_ends_tail_cleanly(millstream: Command, clicks: str) -> None:
    millstream.ok("produce", clicks, "--value", "1")
    with millstream.process("tail", clicks) as process:
        line_from(process.stdout)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (143, b"", b"")


def test_tail_ends_when_its_reader_exits_even_without_new_records(
    millstream: Command, clicks: str
) -> None:
    millstream.ok("produce", clicks, stdin="1\n2\n3\n")
    with millstream.process("tail", clicks, "--values") as process:
        assert process.stdout is not None
        assert line_from(process.stdout) in b"1\n2\n3\n"
        process.stdout.close()
        assert process.wait(15) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_tail_ends_quietly_when_its_reader_exits_during_output(
    millstream: Command, clicks: str
) -> None:
    millstream.ok("produce", clicks, stdin="".join(f"{n}\n" for n in range(30_000)))
    words = ["tail", clicks, "--from-beginning", "--until-end", "-o", "json"]
    with millstream.process(*words) as process:
        line_from(process.stdout)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(15) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


HOSTILE = b"\x1b]0;owned\x07\x1b[2J\rfake line\n\xc2\x9b31m\xe2\x80\xae[red]markup[/red]"


@pytest.mark.parametrize("shape", [["-o", "table"], ["-o", "json"], ["--values"]])
def test_a_hostile_record_cannot_steer_the_terminal(
    shape: list[str], millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    with Producer(broker.address) as producer:
        producer.send(clicks, HOSTILE, key=HOSTILE, headers={"h\x1b[2J": HOSTILE})
    seen = millstream.at_a_terminal("tail", clicks, "--until-end", *shape).out
    assert seen.count("\n") == 1
    shown = seen.removesuffix("\r\n")
    assert shown.isprintable()
    assert "[red]markup[/red]" in shown


def test_colour_is_for_terminals_that_want_it(millstream: Command, clicks: str) -> None:
    millstream.ok("produce", clicks, "--key", "ann", "--value", "1")
    words = ["tail", clicks, "--until-end"]
    assert "\x1b" not in millstream.at_a_terminal(*words).out
    del millstream.environment["NO_COLOR"]
    assert "\x1b[36mann\x1b[0m" in millstream.at_a_terminal(*words).out
    assert "\x1b" not in millstream.at_a_terminal(*words, "--no-color").out
