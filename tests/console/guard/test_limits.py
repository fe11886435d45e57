"""Limits on rates, sizes, times, connections and readers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.console.serving import Served, listening, running, served
from tests.console.streams import Stream

from millstream.console import shared
from millstream.console.guard.limits import Bucket, Buckets, Limits
from millstream.console.shared import Limiter, ResultCache
from millstream.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import Message, Receive, Scope, Send

PATIENCE = 60.0
PARTS, PART = 400, 65_536


@dataclass
class Clock:
    """A clock that tests advance."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0.0, 3.0), max_size=200), st.integers(1, 20), st.floats(0.5, 20.0))
def test_no_interval_has_more_requests_than_burst_and_rate_allow(
    pauses: list[float], burst: int, rate: float
) -> None:
    clock = Clock()
    bucket = Bucket(rate, burst, clock)
    taken: list[float] = []
    for pause in pauses:
        clock.now += pause
        if not bucket.refused():
            taken.append(clock.now)
    for folder, begin in enumerate(taken):
        for further, end in enumerate(taken[folder:], start=1):
            assert further <= burst + rate * (end - begin) + 1e-6


def test_after_the_announced_wait_a_request_is_accepted_again() -> None:
    clock = Clock()
    bucket = Bucket(0.25, 2, clock)
    assert [bucket.refused() for _ in range(3)] == [0, 0, 4]
    clock.now += 4
    assert [bucket.refused() for _ in range(2)] == [0, 4]


def test_the_memory_for_many_clients_is_bounded() -> None:
    buckets = Buckets(rate=1.0, burst=5, most=100)
    for client in range(1_000):
        buckets.refused(f"10.0.{client // 256}.{client % 256}")
    assert len(buckets._buckets) <= 100


def test_too_many_requests_are_refused_with_the_seconds_to_wait(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=Limits(rate=0.001, burst=5)) as console:
        answers = [console("/healthz", token=None) for _ in range(7)]
    assert [answer.status for answer in answers] == [200] * 5 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) > 100
    assert "too many requests" in answers[-1].json["error"]


def test_guessing_tokens_is_slowed_down_without_locking_out_the_owner(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=Limits(guesses=0.001, guessing=4)) as console:
        guesses = [console("/api/jobs", token=f"guess-{number}") for number in range(6)]
        assert [answer.status for answer in guesses] == [401] * 4 + [429] * 2
        assert console("/api/jobs").status == 200


def test_a_large_body_is_refused_with_and_without_content_length(console: Served) -> None:
    path = "/api/jobs/hot/rewind"
    assert console(path, "POST", Content_Length="1000000").status == 413
    assert console("/api/jobs/hot/stop", "POST", Content_Length="1000000").status == 413
    with connected(console) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nAuthorization: Bearer "
        head += (
            f"{console.token}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        )
        head += "Connection: close"
        connection.sendall(head.encode() + b"\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"800\r\n" + b" " * 0x800 + b"\r\n")
        assert received(connection).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "must be a JSON object"),
        (b"[]", "must be a JSON object"),
        (b"[" * 4_000, "must be a JSON object"),
        (b"\xff", "must be a JSON object"),
        (b'{"to": 5}', "to has the wrong type; got '5'"),
        (b'{"to": "start", "file": "x.py"}', "the members to, into, again; got 'file'"),
        (b'{"again": true}', "rewind needs `to`"),
        (b'{"to": "start"}', "either `into` or `again`; got neither"),
        (b'{"to": "start", "again": true, "into": "-2"}', "either `into` or `again`; got both"),
        (b'{"to": "start", "into": "../x"}', "into needs 1 to 50 letters"),
        (b'{"to": "--help", "again": true}', "to needs a point in time; got '--help'"),
        (b'{"to": "1; rm -rf /", "again": true}', "to needs a point in time"),
    ],
)
def test_an_invalid_body_gets_one_sentence(console: Served, body: bytes, sentence: str) -> None:
    asked = console("/api/jobs/hot/rewind", "POST", body=body)
    assert (asked.status, sentence in asked.json["error"]) == (400, True), asked.body


def test_large_headers_are_refused(console: Served) -> None:
    with connected(console) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 100_000)
        assert received(connection)[:12] in (b"", b"HTTP/1.1 431")
    assert console("/healthz", token=None).status == 200


BEGUN = {
    "nothing": b"",
    "a line": b"GET /healthz HTT",
    "headers": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1",
    "a body": b"POST /api/jobs/hot/rewind HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}"
    b"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
}


def test_a_client_that_stalls_is_disconnected(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=Limits(seconds=5)) as console, ExitStack() as held:
        host, token = f"127.0.0.1:{console.port}".encode(), console.token.encode()
        waiting = {name: held.enter_context(connected(console)) for name in BEGUN}
        for name, sent in BEGUN.items():
            waiting[name].sendall(sent.replace(b"{host}", host).replace(b"{token}", token))
        answers = {name: received(one)[:12] for name, one in waiting.items()}
        assert set(answers.values()) <= {b"", b"HTTP/1.1 408"}, answers
        assert console("/healthz", token=None).status == 200


def test_a_response_may_take_longer_than_the_limit_for_a_request(tmp_path: Path) -> None:
    with (
        served(tmp_path / "home", limits=Limits(seconds=4)) as console,
        Stream(console, "/api/stream") as stream,
    ):
        assert stream.next() == ("message", {"jobs": []})
        time.sleep(5)
        console.add_job()
        event = stream.next()
        assert event is not None
        assert [job["job"] for job in event[1]["jobs"]] == ["hot"]


def test_a_reader_that_has_stopped_reading_is_disconnected_and_others_are_not() -> None:
    sent = {"slow": 0, "quick": 0}

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].strip("/")
        start: Message = {"type": "http.response.start", "status": 200, "headers": []}
        await send(start)
        while sent[name] < PARTS:
            await send({"type": "http.response.body", "body": b"x" * PART, "more_body": True})
            sent[name] += 1
        await send({"type": "http.response.body", "body": b""})

    with (
        listening() as (held, port),
        running(endless, Limits(stalled=5), held, port),
        socket.create_connection(("127.0.0.1", port), PATIENCE) as slow,
        socket.create_connection(("127.0.0.1", port), PATIENCE) as quick,
    ):
        slow.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        quick.sendall(b"GET /quick HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert len(received(quick)) > PARTS * PART
        deadline = time.monotonic() + PATIENCE
        while sent["slow"] < PARTS:  # what is sent to one who was left goes nowhere, at once
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(received(slow)) < PARTS * PART


def test_the_number_of_readers_is_limited(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=Limits(readers=1)) as console:
        with Stream(console, "/api/stream") as stream:
            stream.next()
            refused = console("/api/stream")
            assert (refused.status, "too many event streams" in refused.json["error"]) == (
                503,
                True,
            )
        deadline = time.monotonic() + PATIENCE
        while console.console.readers:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with Stream(console, "/api/stream") as stream:
            assert stream.next() is not None


def test_the_number_of_connections_is_limited(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=Limits(connections=3)) as console:
        with ExitStack() as held:
            streams = [held.enter_context(Stream(console, "/api/stream")) for _ in range(3)]
            assert [stream.next() for stream in streams] == [("message", {"jobs": []})] * 3
            began = time.monotonic()
            with connected(console) as one_more:
                assert received(one_more) == b""
            assert time.monotonic() - began < Limits().seconds / 2
            console.add_job()
            assert all(stream.next() is not None for stream in streams)
        deadline = time.monotonic() + PATIENCE
        while _answers(console) is False:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_log_is_bounded_and_ends_with_a_complete_line(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=Limits(log=35)) as console:
        console.add_job()
        console.folder.job("hot").log.write_text("".join(f'{{"n": {n:03d}}}\n' for n in range(50)))
        answer = console("/api/jobs/hot/log?last=40")
    assert answer.body.decode().splitlines() == ['{"n": 047}', '{"n": 048}', '{"n": 049}']


def test_the_number_of_concurrent_calls_is_limited() -> None:
    at_once: list[int] = []
    running: set[int] = set()

    def question(number: int) -> None:
        running.add(number)
        at_once.append(len(running))
        time.sleep(0.02)
        running.remove(number)

    async def scene() -> None:
        few = Limiter(3)
        await asyncio.gather(*(few.ask(question, number) for number in range(12)))

    asyncio.run(scene())
    assert len(at_once) == 12
    assert max(at_once) <= 3


def test_a_call_that_waits_too_long_for_a_slot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_PATIENCE", 0.05)
    over = threading.Event()

    async def scene() -> None:
        few = Limiter(1)
        first = asyncio.create_task(few.ask(over.wait, 60))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="at most 1 scans of topics can run at once"):
            await few.ask(over.is_set)
        over.set()
        assert await first
        assert await few.ask(over.is_set)

    asyncio.run(scene())


def test_concurrent_calls_with_the_same_question_share_one_answer() -> None:
    asked: list[int] = []

    def question(number: int) -> int:
        asked.append(number)
        time.sleep(0.05)
        return len(asked)

    async def scene() -> None:
        answers = ResultCache(seconds=60)
        assert await asyncio.gather(*(answers.ask(question, 1) for _ in range(10))) == [1] * 10
        assert await answers.ask(question, 2) == 2
        assert await answers.ask(question, 1) == 1

    asyncio.run(scene())


def _answers(console: Served) -> bool:
    try:
        return console("/healthz", token=None).status == 200
    except OSError:
        return False


def connected(console: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", console.port), timeout=PATIENCE)


def received(connection: socket.socket) -> bytes:
    """All bytes until the other side closes."""
    whole = bytearray()
    try:
        while part := connection.recv(1 << 20):
            whole += part
    except ConnectionResetError:
        pass
    return bytes(whole)
