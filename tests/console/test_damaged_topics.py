"""A topic with damaged batches, on the page, in its API and in `millstream tail`."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.cli.command import Command
from tests.console.browsing import PATIENCE, browser
from tests.console.serving import Served, served
from tests.console.streams import Stream
from tests.kafka.clients.consuming.test_damaged import filled, harmed
from tests.kafka.damaging import Stored, flipped, log_file, rewrite, scrambled

from millstream.console.page import built_page
from millstream.testing.local_broker import broker as local_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

SIZES = (10, 20, 10, 20, 10)
GONE = {range(10, 30): "fails its checksum", range(40, 60): "cannot be decompressed"}
LEFT = [offset for offset in range(70) if not any(offset in gone for gone in GONE)]
SAID = [f"offsets {gone.start} to {gone.stop - 1} cannot be read: the batch {why}"
        for gone, why in GONE.items()]  # fmt: skip


@pytest.fixture(scope="module")
def hurt() -> Iterator[ThrowAwayBroker]:
    with local_broker() as made:
        yield made


@pytest.fixture(scope="module")
def topic(hurt: ThrowAwayBroker) -> str:
    """Batch 1 has a wrong checksum, batch 3 cannot be decompressed."""
    made = filled(hurt, SIZES)
    harmed(hurt, made, {1: flipped, 3: scrambled})
    return made


@pytest.fixture(scope="module")
def console(hurt: ThrowAwayBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    page = built_page()
    assert page is not None, "the page is not built; run `make env`"
    with served(tmp_path_factory.mktemp("home"), page, kafka=hurt.address) as serving:
        yield serving


@pytest.mark.parametrize("words", [["--from-beginning"], ["-n", "100"]])
def test_tail_shows_all_readable_records_and_reports_the_others(
    hurt: ThrowAwayBroker, topic: str, words: list[str]
) -> None:
    said = Command(hurt.address).process("tail", topic, *words, "--until-end", "-o", "json")
    out, stderr = said.communicate(timeout=60)
    assert said.returncode == 0, stderr
    assert [json.loads(line)["offset"] for line in out.splitlines()] == LEFT
    warnings = [line for line in stderr.decode().splitlines() if "cannot be read" in line]
    assert [any(one in line for line in warnings) for one in SAID] == [True, True]
    assert len(warnings) == 2


def test_a_following_tail_continues_after_damaged_batches(
    hurt: ThrowAwayBroker, topic: str
) -> None:
    live_topics = Command(hurt.address).process("tail", topic, "--from-beginning", "-o", "json",
                                              "--limit", str(len(LEFT)))  # fmt: skip
    try:
        out, _ = live_topics.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        live_topics.kill()
        raise
    assert [json.loads(line)["offset"] for line in out.splitlines()] == LEFT


@pytest.mark.parametrize("at", ["beginning", "end"])
def test_a_page_has_the_readable_records_and_lists_the_others(
    console: Served, topic: str, at: str
) -> None:
    page = console(f"/api/topics/{topic}/records?at={at}&limit=200").json
    assert [record["offset"] for record in page["records"]] == LEFT
    assert page["lost"] == [
        {"partition": 0, "first": gone.start, "next": gone.stop, "why": why}
        for gone, why in GONE.items()
    ]
    assert (page["complete"], page["later"]) == (True, None)


def test_an_unreadable_record_is_answered_with_the_reason(console: Served, topic: str) -> None:
    refused = console(f"/api/topics/{topic}/records/0/15")
    assert (refused.status, "fails its checksum" in refused.json["error"]) == (410, True)
    assert console(f"/api/topics/{topic}/records/0/35").status == 200


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_reports_unreadable_batches(
    console: Served, topic: str, width: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with browser(width=width) as browsed:
        page = browsed.page
        page.goto(console.link)
        expect(page.get_by_text("No jobs yet")).to_be_visible(timeout=PATIENCE)
        for query in ("", "?at=beginning"):
            page.goto(f"http://127.0.0.1:{console.port}/#/topics/{topic}{query}")
            expect(page.locator("li.record").first).to_be_visible(timeout=PATIENCE)
            for one in SAID:
                expect(page.get_by_text(re.compile(one))).to_be_visible(timeout=PATIENCE)
            assert browsed.overflow() <= 0
        folder = tmp_path_factory.mktemp("pictures")
        page.screenshot(path=folder / f"lost-{width}.png")


def test_following_reports_unreadable_batches_and_continues(
    console: Served, hurt: ThrowAwayBroker
) -> None:
    """While the broker is down, a damaged batch and a good one are appended to its log."""
    topic = filled(hurt, (10, 5))

    def add(batches: list[Stored]) -> None:
        for first, harm in ((15, flipped), (25, None)):
            raw = bytearray(batches[0].raw)
            struct.pack_into(">q", raw, 0, first)
            if harm is not None:
                harm(raw)
            batches.append(Stored(first, first + 9, raw))

    with Stream(console, f"/api/topics/{topic}/follow") as stream:
        assert stream.next() is not None
        rewrite(hurt, (log_file(hurt, topic), add))
        seen: list[int] = []
        lost: list[Any] = []
        while len(seen) < 10:
            event = stream.next()
            assert event is not None
            assert event[0] == "message", event
            seen += [record["offset"] for record in event[1]["records"]]
            lost += event[1]["lost"]
    assert seen == list(range(25, 35))
    assert lost == [{"partition": 0, "first": 15, "next": 25, "why": "fails its checksum"}]
