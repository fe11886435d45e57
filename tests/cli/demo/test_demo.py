"""`millstream demo`: the page agrees with Kafka and the stores while they change."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE, Browsed, browser
from tests.jobs.stacks import Stack, until

from millstream.engine.inspection.inspect import commits, open_checkpoint
from millstream.jobs.alerts.alerts import alerts
from millstream.jobs.folders import StackFolder
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.sinks.files.writer import committed
from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

RATE = 30
MOST_BYTES = 4 << 30
LINK = re.compile(r"http://127\.0\.0\.1:\d+/#token=\S+")


class Demo:
    """A running demo and its output."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.said = stack, ""
        self.heard: list[float] = [time.monotonic()]
        words = ["demo", "--rate", str(RATE), "--kill-after", "1"]
        self.process: subprocess.Popen[bytes] = stack.millstream.process(
            *words, stdin=PIPE, stdout=DEVNULL
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as talk:
            for line in talk:
                self.said += line.decode()
                self.heard.append(time.monotonic())

    def close_the_shop(self) -> int:
        """Press Enter, which closes the shop; return the number of records."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        said = self.until(r"the shop is closed: [\d,]+ records sent")
        return int(said.split()[4].replace(",", ""))

    def kill(self) -> None:
        """SIGKILL, if it has not ended by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._listening.join(60)

    def longest_silence(self) -> float:
        """The most seconds between two lines."""
        return max(after - before for before, after in pairwise(self.heard))

    def until(self, pattern: str) -> str:
        """Wait for output that matches the pattern, and return it."""

        def found() -> str | None:
            assert self.process.poll() is None, self.said
            match = re.search(pattern, self.said)
            return match[0] if match else None

        said: str = until(found, pattern, 280)
        return said

    def end(self) -> None:
        """Press Ctrl-C twice, and wait."""
        self.process.send_signal(signal.SIGINT)
        self.until("stopping")
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(120) == 0, self.said

    def memory(self) -> int:
        """Bytes of all its processes, those they share counted once."""
        total = 0
        for process in [psutil.Process(self.process.pid), *self.stack.processes()]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total


@pytest.fixture
def demo(broker: ThrowAwayBroker, tmp_path: Path) -> Iterator[Demo]:
    """A demo on the shared broker."""
    running = Demo(Stack(tmp_path / "home", broker.address))
    yield running
    running.kill()
    said = running.stack.millstream("down")
    left = running.stack.processes()
    for process in left:
        process.kill()
    assert left == [], said


def in_kafka(kafka: str, topic: str) -> list[Any]:
    """What a topic holds, as committed."""
    with Consumer(topic, kafka=kafka, until_end=True) as reader:
        return [json.loads(record.value or b"null") for record in reader]


def check_reading(demo: Demo, browsed: Browsed) -> int:
    """One reading of the page, compared with the commits and the topic; the rows it shows."""
    picture = browsed.page.evaluate(
        """() => ({
            rows: document.querySelector(".tile[data-fact=rows] .value").innerText,
            batch: document.querySelector("[data-fact=batch]").innerText,
            table: [...document.querySelectorAll("[data-output='pages now'] tbody tr")].map(
                (row) => Object.fromEntries(
                    [...row.cells].map((cell) => [cell.dataset.column, cell.innerText]))),
        })"""
    )
    rows = int(picture["rows"].replace(",", ""))
    batch = int(re.search(r"batch (\d+)", picture["batch"])[1])  # type: ignore[index]
    checkpoint = open_checkpoint(demo.stack.home / "jobs" / "shop-views")
    assert rows == sum(row["rows"] for row in commits(checkpoint) if row["batch"] <= batch)
    left = {
        (row["page"], row["window_start"][11:19], row["pane_index"]): row["views"]
        for row in in_kafka(demo.stack.kafka, "shop.pages")
    }
    assert picture["table"]
    for row in picture["table"]:
        pane = (row["page"], row["window_start"], int(row["pane_index"]))
        assert left[pane] == int(row["views"].replace(",", "")), row
    return rows


@pytest.mark.timeout(900)
def test_the_demo_shows_on_its_page_what_kafka_and_the_stores_hold(
    demo: Demo, capsys: pytest.CaptureFixture[str]
) -> None:
    link = demo.until(LINK.pattern)
    with browser() as browsed:
        page = browsed.page
        page.goto(link)
        page.locator("[data-job=shop-views] a").click()
        for shown in ("[data-output='pages now'] tbody tr", "[data-fact=batch]"):
            expect(page.locator(shown).first).to_be_visible(timeout=4 * PATIENCE)
        first = check_reading(demo, browsed)
        rows = page.locator(".tile[data-fact=rows] .value")
        expect(rows).not_to_have_text(f"{first:,}", timeout=4 * PATIENCE)
        refused = demo.stack.millstream("demo", "--seconds", "1")
        assert refused.code == 1
        assert "one demo runs at a time" in refused.err
        second = check_reading(demo, browsed)
        assert second > first
        demo.until("shop-views is back after")
        expect(page.locator(".tile[data-fact=restarts] .value")).to_have_text("1", timeout=PATIENCE)
        demo.until(r"shop-views is on Spark, whose UI is at http://127\.0\.0\.1:\d+")
        alerted(demo)
        sent = demo.close_the_shop()
        expect(rows).to_have_text(f"{sent:,}", timeout=4 * PATIENCE)
        balanced(demo, browsed, sent)
        stored_and_joined(demo, sent)
        memory = demo.memory()
        assert memory <= MOST_BYTES
        flat = [check_reading(demo, browsed) for _ in range(2)]
        assert flat == [sent, sent]
        expect(page.locator(".tile[data-fact=rate] .value")).to_have_text("0", timeout=PATIENCE)
        assert browsed.hosts() == {link.split("/")[2]}
    demo.end()
    assert "Traceback" not in demo.said
    assert demo.stack.processes() == []
    with capsys.disabled():
        back = re.search(r"back after (\d+ s)", demo.said)
        silence = demo.longest_silence()
        print(f"\n  the demo: {memory / 1e9:.1f} GB, longest silence {silence:.1f} s; "
              f"a killed job {back[0] if back else 'lost'}")  # fmt: skip


def balanced(demo: Demo, browsed: Browsed, sent: int) -> None:
    """Every view is in a window, late or dead: none is lost, none counted twice."""

    def tile(fact: str) -> int:
        return browsed.number(f".tile[data-fact={fact}] .value")

    def balance() -> bool:
        panes = in_kafka(demo.stack.kafka, "shop.pages")
        final = [row for row in panes if row["pane"] == "on_time"]
        assert len({(row["page"], row["window_start"]) for row in final}) == len(final)
        assert max(row["window_start"] for row in final) < iso(datetime.now(UTC))
        counted = sum(int(row["views"]) for row in final)
        return counted + tile("late") + tile("dead") == sent and in_store(demo) == counted

    until(balance, "all views in windows, late or dead", 120)
    assert tile("dead") == len(in_kafka_raw(demo.stack.kafka, "shop-views.dead"))
    assert tile("late") == len(in_kafka(demo.stack.kafka, "shop.late"))


def alerted(demo: Demo) -> None:
    """The owner has received a mail that the checkout fails."""
    demo.until(r"mail for owner@shop\.example: \[.*firing.*\] shop-visitors: pages fail")
    [found] = alerts(StackFolder(demo.stack.home / "stack"), "shop-visitors", "pages fail")
    assert found["key"] == {"page": "/checkout"}
    assert found["state"] in ("firing", "pending", "resolved")
    row = found["row"]
    assert row["failures"] > 2
    assert row["failures"] / row["views"] > 0.3
    failed = [view for view in good_views(demo) if view["status"] == 503]
    assert {view["page"] for view in failed} == {"/checkout"}
    assert len(failed) >= row["failures"]


def stored_and_joined(demo: Demo, sent: int) -> None:
    """Every good view is in the files, and nearly every search (a few come too late) in the
    rates."""
    views = good_views(demo)
    searches = {view["search"] for view in views if view["page"] == "/search"}
    clicked = {view["search"] for view in views if view["page"] == "/product"} & searches

    def arrived() -> bool:
        folder = demo.stack.home / "demo" / "views"
        stored = sum(pq.read_metadata(file).num_rows for file in committed(folder))
        rates = in_kafka(demo.stack.kafka, "shop.clicks")
        counted = sum(row["searches"] for row in rates)
        assert stored <= len(views) <= sent
        assert counted <= len(searches)
        assert sum(row["clicked"] for row in rates) <= len(clicked)
        return bool(stored == len(views) and counted > 0.9 * len(searches))

    until(arrived, "all views in the files, and searches in the rates", 120)


def good_views(demo: Demo) -> list[dict[str, Any]]:
    """The shop's well-formed records."""
    whole = [value for value in in_kafka_raw(demo.stack.kafka, "shop.views")
             if value is not None and value.endswith(b"}")]  # fmt: skip
    return [{"search": None, **json.loads(value)} for value in whole]


def in_store(demo: Demo) -> int:
    """The views that the SQLite store of the demo has counted."""
    file = demo.stack.home / "demo" / "shop.db"
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as store:
        return int(store.execute("SELECT sum(views) FROM pages").fetchone()[0])


def in_kafka_raw(kafka: str, topic: str) -> list[bytes | None]:
    """The raw values of a topic."""
    with Consumer(topic, kafka=kafka, until_end=True) as reader:
        return [record.value for record in reader]
