"""The limit on a request's line and headers, however they are split into packets."""

from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.console.guard.test_limits import connected, received
from tests.console.serving import Served, served

from millstream.console.guard.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 4_096


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home", limits=Limits(headers=LIMIT, rate=1e6, burst=10**6)) as serving:
        yield serving


def head(console: Served, size: int, *, many: bool = False, padded: bool = False) -> bytes:
    """A request for `/healthz` of exactly `size` bytes."""
    begin = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nConnection: close\r\n"
    left = size - len(begin) - 2
    if many:
        whole, rest = divmod(left, 40)
        lines = "X-Header: " + "x" * 28 + "\r\n"
        filled = lines * (whole - 1) + "X-Header: " + "x" * (28 + rest) + "\r\n"
    else:
        filled = "X: " + (" " if padded else "x") * (left - 6) + "x\r\n"
    text = (begin + filled + "\r\n").encode()
    assert len(text) == size
    return text


def in_one(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)


def in_pieces(connection: socket.socket, sent: bytes) -> None:
    for at in range(0, len(sent), 700):
        connection.sendall(sent[at : at + 700])
        time.sleep(0.002)


def by_the_byte_at_the_edge(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent[: LIMIT - 10])
    for at in range(LIMIT - 10, len(sent)):
        time.sleep(0.001)
        connection.sendall(sent[at : at + 1])


@pytest.mark.parametrize("send", [in_one, in_pieces, by_the_byte_at_the_edge])
@pytest.mark.parametrize("kind", ["one large", "many small", "padded"])
def test_heads_are_accepted_up_to_the_limit_and_refused_beyond_it(
    small: Served, kind: str, send: object
) -> None:
    answers = []
    for size in (LIMIT - 1, LIMIT, LIMIT + 1, LIMIT + 100, 60_000):
        with connected(small) as connection:
            sent = head(small, size, many=kind == "many small", padded=kind == "padded")
            try:
                (in_pieces if send is by_the_byte_at_the_edge and size > 2 * LIMIT else send)(  # type: ignore[operator]
                    connection, sent
                )
            except OSError:
                assert size > LIMIT
            answers.append(received(connection)[:12])
    assert answers[:2] == [b"HTTP/1.1 200"] * 2
    assert set(answers[2:]) <= {b"HTTP/1.1 431", b""}, answers
    assert answers[2] == b"HTTP/1.1 431"


def test_the_limit_applies_to_a_pipelined_request(small: Served) -> None:
    first = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{small.port}\r\n\r\n".encode()
    for size, status in ((LIMIT, b"HTTP/1.1 200"), (LIMIT + 1, b"HTTP/1.1 431")):
        with connected(small) as connection:
            connection.sendall(first + head(small, size))
            answers = received(connection)
        assert answers.count(b"HTTP/1.1 ") == 2, answers
        assert answers.rpartition(b"HTTP/1.1 ")[2][:3] == status[-3:]


def test_pipelined_requests_are_answered_in_order(small: Served) -> None:
    path = b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n"
    names = [b"healthz", b"none", b"readyz", b"healthz"] * 100
    sent = [path % (name, small.port, b"Connection: close\r\n" * (folder == len(names) - 1))
            for folder, name in enumerate(names)]  # fmt: skip
    with connected(small) as connection:
        connection.sendall(b"".join(sent))
        answers = received(connection).split(b"HTTP/1.1 ")[1:]
    expected = {b"healthz": b"200", b"none": b"404", b"readyz": b"503"}
    assert [answer[:3] for answer in answers] == [expected[name] for name in names]


def test_a_body_in_small_pieces_behind_a_head_at_the_limit_arrives(console: Served) -> None:
    begin = f"POST /api/jobs/hot/rewind HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n"
    begin += f"Authorization: Bearer {console.token}\r\nContent-Type: application/json\r\n"
    begin += "Connection: close\r\nContent-Length: 2000\r\n"
    filled = "X: " + "x" * (16_384 - len(begin) - 7) + "\r\n\r\n"
    body = b'{"to": "nothing", "again": true' + b" " * (2000 - 32) + b"}"
    sent = (begin + filled).encode() + body
    with connected(console) as connection:
        in_pieces(connection, sent)
        answer = received(connection)
    assert b"to needs a point in time" in answer or b"hot" in answer, answer


MALFORMED = [
    b"\x00\x01\x02\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nBad header\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"POST /api/jobs/a/stop HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /none HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na",
    b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n\x00\x00\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET " + b"x" * 20_000,
]


def test_malformed_requests_leave_nothing_in_the_log(
    console: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    host = f"127.0.0.1:{console.port}".encode()
    for sent in MALFORMED * 5:
        with connected(console) as connection:
            connection.sendall(sent.replace(b"{host}", host))
            connection.shutdown(socket.SHUT_WR)
            answer = received(connection)
            assert b"500 " not in answer
    assert [record.getMessage() for record in caplog.records if record.levelno > 20] == []
    assert console("/healthz").status == 200
