"""Topics and their records on the page, compared with Kafka; and hostile records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE, Browsed, browser
from tests.console.serving import Served, served

from millstream.console.page import built_page
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Route

    from millstream.testing.local_broker import ThrowAwayBroker

SCRIPT = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
BIDI = "safe\u202e\u2066gnp.exe\u2069"
LARGEST = 16 << 20
DEPTH = 200


@pytest.fixture
def page_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: ThrowAwayBroker
) -> Iterator[Served]:
    """A console that serves the built page, over a real Kafka."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    page = built_page()
    assert page is not None, "the page is not built; run `make env`"
    with served(tmp_path / "home", page, kafka=broker.address) as serving:
        yield serving


def opened(browsed: Browsed, console: Served, topic: str, query: str = "") -> None:
    """The message browser of a topic."""
    browsed.page.goto(console.link)
    expect(browsed.page.get_by_text("No jobs yet")).to_be_visible(timeout=PATIENCE)
    browsed.page.goto(f"http://127.0.0.1:{console.port}/#/topics/{topic}{query}")


def in_kafka(kafka: str, topic: str) -> dict[str, Any]:
    """Every record of a topic by its position."""
    with Consumer(topic, kafka=kafka, until_end=True) as reader:
        return {f"{record.partition}@{record.offset}": record for record in reader}


def places(browsed: Browsed) -> list[str]:
    """The positions of the records, in the order shown."""
    shown: list[str] = browsed.page.locator("li.record").evaluate_all(
        "all => all.map((one) => one.dataset.place)"
    )
    return shown


def test_records_and_counts_are_those_of_kafka_while_they_change(
    page_console: Served, broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic, partitions=2)
    with Producer(broker.address) as producer, browser() as browsed:
        page = browsed.page
        for n in range(20):
            producer.send(topic, {"n": n, "even": n % 2 == 0}, key=f"k{n}", headers={"no": str(n)})
        producer.flush()
        opened(browsed, page_console, topic)
        expect(page.locator("li.record")).to_have_count(20, timeout=PATIENCE)
        assert set(places(browsed)) == set(in_kafka(broker.address, topic))
        expect(page.get_by_text("following")).to_be_visible(timeout=PATIENCE)

        producer.send(topic, {"n": 20, "price": 9007199254740993}, key="k20", headers={"no": "x"})
        producer.flush()
        expect(page.locator("li.record")).to_have_count(21, timeout=PATIENCE)
        held = in_kafka(broker.address, topic)
        assert set(places(browsed)) == set(held)
        newest = page.locator("li.record").first
        assert held[str(newest.get_attribute("data-place"))].key == b"k20"
        newest.get_by_role("button").first.click()
        expect(newest.locator(".tree")).to_contain_text("9007199254740993")
        expect(newest).to_contain_text("header no")
        expect(page.locator(".tile[data-fact=end] .value")).to_have_text("21", timeout=PATIENCE)

        page.get_by_label("where").fill("even = true and n >= 10")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("li.record")).to_have_count(5, timeout=PATIENCE)
        page.goto(f"http://127.0.0.1:{page_console.port}/#/topics")
        row = page.locator(f"[data-topic='{topic}'] [data-fact=records]")
        expect(row).to_have_text("21", timeout=PATIENCE)
        assert browsed.complaints == []


def test_pausing_freezes_the_records_and_continuing_skips_none(
    page_console: Served, broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic)
    with Producer(broker.address) as producer, browser() as browsed:
        page = browsed.page
        opened(browsed, page_console, topic)
        expect(page.get_by_text("No records")).to_be_visible(timeout=PATIENCE)
        producer.send(topic, b"one")
        producer.flush()
        expect(page.locator("li.record")).to_have_count(1, timeout=PATIENCE)
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("paused")).to_be_visible()
        for n in range(30):
            producer.send(topic, f"while paused {n}".encode())
        producer.flush()
        expect(page.locator(".tile[data-fact=end] .value")).to_have_text("31", timeout=PATIENCE)
        assert len(places(browsed)) == 1
        page.get_by_role("button", name="Follow").click()
        expect(page.locator("li.record")).to_have_count(31, timeout=PATIENCE)

        page.locator("li.record").first.get_by_role("button").first.click()
        producer.send(topic, b"while somebody reads")
        producer.flush()
        more = page.get_by_role("button", name="1 new record")
        expect(more).to_be_visible(timeout=PATIENCE)
        assert len(places(browsed)) == 31
        more.click()
        expect(page.locator("li.record")).to_have_count(32, timeout=PATIENCE)
        assert set(places(browsed)) == set(in_kafka(broker.address, topic))


def test_records_that_could_not_be_fetched_while_following_are_reported_missing(
    page_console: Served, broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic)
    asked: list[Route] = []

    def once(route: Route) -> None:
        asked.append(route)
        if len(asked) == 1:
            route.continue_()
        else:
            route.abort()

    with browser() as browsed:
        browsed.page.route("**/records?*", once)
        opened(browsed, page_console, topic)
        warning = browsed.page.get_by_text("some records may be missing; reload")
        expect(warning).to_be_visible()
        assert len(asked) >= 2


def test_assertions_on_pages_have_the_same_timeout_as_on_elements() -> None:
    with browser() as browsed:
        browsed.page.set_content("<p hidden>late</p>")
        browsed.page.evaluate("setTimeout(() => document.querySelector('p').hidden = false, 6000)")
        expect(browsed.page.locator("p")).to_be_visible()


def test_hostile_records_are_shown_escaped(
    page_console: Served, broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic, settings={"max.message.bytes": LARGEST})
    deep: Any = "the bottom"
    for _ in range(DEPTH):
        deep = {"in": deep}
    with Producer(broker.address, settings={"message.max.bytes": LARGEST}) as producer:
        producer.send(topic, {"html": SCRIPT, "bidi": BIDI}, key=SCRIPT, headers={SCRIPT: SCRIPT})
        producer.send(topic, json.dumps(deep).encode())
        producer.send(topic, b'{"field": "' + b"x" * 10_000_000 + b'"}')
        producer.send(topic, b"\xff\xfe\x00 not text")
        producer.flush()
    with browser() as browsed:
        page = browsed.page
        page.on("dialog", lambda dialog: browsed.complaints.append(dialog.message))
        opened(browsed, page_console, topic)
        expect(page.locator("li.record")).to_have_count(4, timeout=PATIENCE)
        for folder in ("0@0", "0@1", "0@2", "0@3"):
            page.locator(f"[data-place='{folder}'] .record-line").click()
        expect(page.locator("[data-place='0@0']")).to_contain_text(SCRIPT)
        expect(page.locator("[data-place='0@0'] .tree .strange").first).to_have_text("U+202E")
        twists = page.locator("[data-place='0@1'] .twist[aria-expanded=false]")
        for _ in range(10):
            twists.click()
        large = page.locator("[data-place='0@2']")
        expect(large).to_contain_text("10.0 MB, truncated")
        large.get_by_role("button", name="Load more").click()
        expect(large.get_by_text("Only the beginning is shown")).to_be_visible(timeout=PATIENCE)
        assert page.title() == f"{topic} · Millstream"
        assert page.locator("main script, main img").count() == 0
        assert browsed.overflow() <= 0
        assert browsed.complaints == []
