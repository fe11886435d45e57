"""The page in a real browser: it shows the current content of the stores."""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE, browser
from tests.console.serving import Served, facts, served
from tests.jobs.test_live_store import staged

from millstream.console.page import built_page
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLog
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sinks.live.store import LiveWriter
from millstream.sinks.spec import Opening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHART = Chart("views", x="window_start", y="n", by="page")
TABLE = LiveTable("newest", key="page")
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"> & <b>bold</b>"


class Shown:
    """A job with a chart and a table, filled by the test."""

    def __init__(self, console: Served, folder: Path) -> None:
        self._console = console
        checkpoint = Checkpoint(folder / "job")
        checkpoint.open("hot", 256)
        self._writer = LiveWriter(Opening("hot", checkpoint.job, 1, (CHART, TABLE)))
        self._writer.recover(None)
        checkpoint.close()
        console.add_job(checkpoint=str(folder / "job"))
        self._run_log = RunLog(console.folder.job("hot").run_log, "r2", 1)

    def batch(self, batch: int, rows: list[tuple[int, str, int]]) -> None:
        """One more batch: its rows in the store, its facts in the run log."""
        self._writer.write(f"i{batch}", batch, [staged(CHART, rows), staged(TABLE, rows)])
        self._run_log.batch(facts(batch))
        self._run_log.beat(time.time(), None)

    def close(self) -> None:
        self._writer.close()
        self._run_log.close()


@pytest.fixture
def page_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A console that serves the built page."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    page = built_page()
    assert page is not None, "the page is not built; run `make env`"
    with served(tmp_path / "home", page) as serving:
        yield serving


def test_figures_on_the_page_are_those_of_the_stores_while_they_change(
    page_console: Served, tmp_path: Path
) -> None:
    with browser() as browsed:
        page = browsed.page
        page.goto(page_console.link)
        expect(page.get_by_text("No jobs yet")).to_be_visible(timeout=PATIENCE)
        shown = Shown(page_console, tmp_path)
        shown.batch(4, [(1, "/", 3), (1, "/cart", 1)])
        expect(page.locator("[data-job=hot] [data-fact=rows]")).to_have_text(
            "400", timeout=PATIENCE
        )
        assert browsed.text("[data-job=hot] [data-fact=state]") == "stopped"

        page.locator("[data-job=hot] a").click()
        expect(page.locator("[data-output=views] [data-series='/'] b")).to_have_text("3")
        expect(page.locator("[data-output=newest] tbody tr")).to_have_count(2)
        shown.batch(5, [(2, "/", 12)])
        expect(page.locator("[data-output=views][data-batch='5']")).to_be_visible(timeout=PATIENCE)
        assert browsed.number("[data-output=views] [data-series='/'] b") == 12
        assert browsed.number("[data-output=newest] tbody tr:has-text('00:02:00') [data-column=n]"
                              ) == 12  # fmt: skip
        expect(page.locator(".tile[data-fact=rows] .value")).to_have_text("500", timeout=PATIENCE)
        assert "batch 5" in browsed.text("[data-fact=batch]")
        expect(page.locator(".flow")).to_contain_text("tumbling(auction)")
        shown.close()
        assert browsed.hosts() == {f"127.0.0.1:{page_console.port}"}
        assert browsed.complaints == []
        assert page_console.token not in page.url


def test_a_job_is_stopped_and_started_from_the_page(page_console: Served) -> None:
    page_console.add_job()
    with browser() as browsed:
        browsed.page.goto(page_console.link)
        browsed.page.locator("[data-job=hot] a").click()
        browsed.page.get_by_role("button", name="Start").click()
        expect(browsed.page.get_by_text("start requested")).to_be_visible(timeout=PATIENCE)
    with JobRegistry(page_console.folder.registry, read_only=True) as registry:
        assert registry.job("hot").wanted == "running"


def test_the_head_of_a_job_links_to_the_page_of_spark(page_console: Served) -> None:
    for name, address in (("on", "http://127.0.0.1:4041"), ("odd", "javascript:alert(1)")):
        page_console.add_job(name, about={"spark_ui": address}, places=("bridge", "spark"))
    with ExitStack() as running, browser() as browsed:
        for name in ("on", "odd"):
            lock = page_console.folder.job(name).lock.take()
            held = running.enter_context(os.fdopen(lock or 0, "w"))
            print(os.getpid(), file=held, flush=True)
        browsed.page.goto(page_console.link)
        browsed.page.locator("[data-job=on] a").click()
        link = browsed.page.get_by_role("link", name="Spark UI")
        expect(link).to_have_attribute("href", "http://127.0.0.1:4041", timeout=PATIENCE)
        expect(link).to_have_attribute("target", "_blank")
        expect(browsed.page.locator("[data-fact=batch]")).to_contain_text("narrow · spark")
        browsed.page.get_by_role("link", name="Jobs").first.click()
        browsed.page.locator("[data-job=odd] a").click()
        expect(browsed.page.get_by_text("javascript:alert(1)")).to_be_visible(timeout=PATIENCE)
        assert link.count() == 0


def test_without_the_token_the_page_only_shows_how_to_get_it(
    page_console: Served,
) -> None:
    page_console.add_job()
    with browser() as browsed:
        for end in ("", "#token=wrong"):
            browsed.page.goto(f"http://127.0.0.1:{page_console.port}/{end}")
            expect(browsed.page.get_by_text("needs its token")).to_be_visible(timeout=PATIENCE)
        assert "hot" not in browsed.page.content()


def test_hostile_text_is_shown_as_text(page_console: Served) -> None:
    page_console.add_job()
    with JobRegistry(page_console.folder.registry) as registry:
        registry.update("hot", reason=HOSTILE)
    with browser() as browsed:
        browsed.page.goto(page_console.link)
        expect(browsed.page.get_by_text(HOSTILE)).to_be_visible(timeout=PATIENCE)
        assert browsed.page.title() == "Jobs · Millstream"
        assert browsed.page.locator("img[src=x]").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (820, "dark"), (1400, "dark")])
def test_nothing_overflows_at_any_width(
    page_console: Served, tmp_path: Path, width: int, scheme: str
) -> None:
    shown = Shown(page_console, tmp_path)
    shown.batch(4, [(minute, f"/{minute}", minute) for minute in range(12)])
    shown.close()
    with browser(width=width, scheme=scheme) as browsed:
        page = browsed.page
        page.goto(page_console.link)
        page.locator("[data-job=hot] a").click()
        expect(page.locator("[data-output=views] canvas")).to_be_visible(timeout=PATIENCE)
        assert browsed.overflow() <= 0
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 384
        assert light == (scheme == "light")
        assert browsed.text("[data-output=views] .keys li:last-child") == "and 4 more"
        for tab, heading in (("Plan", "Physical plan"), ("Event time", "Delay behind")):
            page.get_by_role("link", name=tab).click()
            expect(page.get_by_role("heading", name=heading)).to_be_visible(timeout=PATIENCE)
            assert browsed.overflow() <= 0
        assert browsed.complaints == []
