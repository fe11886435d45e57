"""Requests without the token do not affect the owner, even from the same address."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.console.guard.test_limits import PATIENCE, connected, received
from tests.console.serving import Served, served
from tests.console.streams import Stream

from millstream.console.guard.limits import Buckets, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = Limits(rate=0.001, burst=10, guesses=0.001, guessing=5)
PATHS = ("/api/jobs", "/healthz", "/metrics", "/readyz", "/", "/assets/none.js", "/none")


def test_requests_without_the_token_do_not_use_up_the_owners_limits(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=SMALL) as console:
        strangers = [console(path, token=None).status for path in PATHS for _ in range(15)]
        strangers += [console("/api/jobs", token="wrong").status for _ in range(15)]
        assert 429 in strangers
        owner = [console("/api/jobs").status for _ in range(10)]
    assert owner == [200] * 10


def test_the_owners_limits_count_only_the_owners_requests(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=SMALL) as console:
        owner = [console("/healthz").status for _ in range(12)]
        assert owner == [200] * 10 + [429] * 2
        assert console("/healthz", token=None).status == 200


def test_the_page_loads_during_a_flood_of_requests_without_the_token(tmp_path: Path) -> None:
    """A browser loads the page's files without the token, which it does not have yet."""
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<html></html>")
    (page / "assets" / "page.js").write_text("1")
    with served(tmp_path / "home", page, limits=SMALL) as console:
        for _ in range(30):
            console("/api/jobs", token=None)
            console("/healthz", token=None)
        answers = [console(path, token=None).status for path in ("/", "/assets/page.js") * 20]
    assert set(answers) == {200}


def test_addresses_beyond_the_maximum_share_one_bucket() -> None:
    """A client with many addresses gains nothing by rotating them."""
    buckets = Buckets(rate=0.001, burst=5, most=100)
    given = [buckets.refused(f"10.0.{n // 256}.{n % 256}") for n in range(2_000) for _ in (1, 2)]
    assert given.count(0) <= 100 * 2 + 5
    assert len(buckets._buckets) <= 100


def test_addresses_of_one_network_of_ipv6_are_one_client() -> None:
    buckets = Buckets(rate=0.001, burst=5)
    given = [buckets.refused(f"2001:db8:1:2:{n:x}::1") for n in range(50)]
    assert given.count(0) == 5
    assert buckets.refused("2001:db8:1:3::1") == 0
    assert buckets.refused("::ffff:10.0.0.1") == buckets.refused("10.0.0.2") == 0


def test_silent_connections_make_room_for_new_ones(tmp_path: Path) -> None:
    with (
        served(tmp_path / "home", limits=Limits(connections=8)) as console,
        Stream(console, "/api/stream") as stream,
        ExitStack() as held,
    ):
        stream.next()
        silent = [held.enter_context(connected(console)) for _ in range(8)]
        assert [console("/api/jobs").status for _ in range(10)] == [200] * 10
        assert received(silent[0]) == b""
        console.add_job()
        event = stream.next()
        assert event is not None
        assert [job["job"] for job in event[1]["jobs"]] == ["hot"]


@pytest.mark.parametrize("sent", [
    b"", b"GET /healthz HTT", b"GET /api/jobs HTTP/1.1\r\nHost: x\r\n",
    b"POST /api/jobs/hot/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{",
    b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n",
])  # fmt: skip
def test_a_flood_of_connections_does_not_block_the_owner(tmp_path: Path, sent: bytes) -> None:
    with served(tmp_path / "home", limits=Limits(connections=50)) as console:
        sent = sent.replace(b"{host}", f"127.0.0.1:{console.port}".encode())
        with flood(console, sent, connections=200):
            times, answers = [], []
            for _ in range(20):
                began = time.monotonic()
                answers.append(console("/api/jobs").status)
                times.append(time.monotonic() - began)
    assert answers == [200] * 20
    assert sorted(times)[10] < 1.0, times


def test_a_flood_of_requests_does_not_block_the_owner(tmp_path: Path) -> None:
    limits = Limits(rate=20, burst=100)
    with served(tmp_path / "home", limits=limits) as console, asking(console, threads=4) as asked:
        answers = [console("/api/jobs").status for _ in range(100)]
        assert answers == [200] * 100
    assert asked[429] > 100


@contextmanager
def flood(console: Served, sent: bytes, connections: int) -> Iterator[None]:
    """Keep `count` connections that have sent this and wait; replace each that is closed."""
    over = threading.Event()

    def run() -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            try:
                one = socket.create_connection(("127.0.0.1", console.port), 5)
                one.sendall(sent)
                held.append(one)
            except OSError:
                time.sleep(0.01)
            if len(held) > connections:
                held.pop(0).close()
        for one in held:
            one.close()

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def asking(console: Served, threads: int) -> Iterator[dict[int, int]]:
    """Send requests without the token as fast as possible; return the number of each status."""
    over, counts = threading.Event(), {401: 0, 429: 0}

    def run() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)
        while not over.is_set():
            connection.request("GET", "/api/jobs")
            answer = connection.getresponse()
            answer.read()
            counts[answer.status] += 1
        connection.close()

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    deadline = time.monotonic() + PATIENCE
    while counts[429] < 100:
        assert time.monotonic() < deadline, counts
        time.sleep(0.05)
    try:
        yield counts
    finally:
        over.set()
        for thread in running:
            thread.join()
