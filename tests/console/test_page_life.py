"""The page over a restart of its server, with the keyboard only, and in both colour schemes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE, Browsed, browser
from tests.console.serving import Served, facts, served

from millstream.console.page import built_page
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLog

if TYPE_CHECKING:
    from pathlib import Path

LOST = "Connection lost, reconnecting"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The built page."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    page = built_page()
    assert page is not None, "the page is not built; run `make env`"
    return page


def one_more_batch(console: Served, batch: int) -> None:
    """The job has read another hundred rows."""
    run_log = RunLog(console.folder.job("hot").run_log, f"r{batch}", 1)
    run_log.batch(facts(batch))
    run_log.beat(time.time(), None)
    run_log.close()


def test_the_page_reconnects_to_a_restarted_server_and_continues(
    built: Path, tmp_path: Path
) -> None:
    with browser() as browsed:
        page = browsed.page
        with served(tmp_path / "home", built) as console:
            console.add_job()
            page.goto(console.link)
            page.locator("[data-job=hot] a").click()
            rows = page.locator(".tile[data-fact=rows] .value")
            expect(rows).to_have_text("300", timeout=PATIENCE)
        expect(page.get_by_text(LOST)).to_be_visible(timeout=PATIENCE)
        expect(rows).to_have_text("300")
        expect(page.get_by_role("button", name="Start")).to_be_disabled()
        with served(tmp_path / "home", built, port=console.port) as again:
            one_more_batch(again, 4)
            expect(rows).to_have_text("400", timeout=PATIENCE)
            expect(page.get_by_text(LOST)).to_have_count(0)
            one_more_batch(again, 5)
            expect(rows).to_have_text("500", timeout=PATIENCE)
        assert [said for said in browsed.complaints if "Failed to load" not in said
                and "ERR_" not in said] == []  # fmt: skip


def test_the_page_shows_that_a_job_dies_and_is_restarted(built: Path, tmp_path: Path) -> None:
    with served(tmp_path / "home", built) as console, browser() as browsed:
        page = browsed.page
        console.add_job()
        page.goto(console.link)
        state = page.locator("[data-job=hot] [data-fact=state]")
        for name, restarts in (("running", 0), ("failing", 0), ("running", 1)):
            with JobRegistry(console.folder.registry) as registry:
                registry.update("hot", state=name, restarts=restarts,
                          reason="killed by SIGKILL" if name == "failing" else None)  # fmt: skip
            expect(state).to_have_text(name, timeout=PATIENCE)
        expect(page.locator("[data-job=hot] [data-fact=restarts]")).to_have_text("1")
        expect(page.get_by_text("killed by SIGKILL")).to_have_count(0)


def focused(browsed: Browsed) -> str:
    """The text of the focused element; its focus must be visible."""
    words: str = browsed.page.evaluate(
        """() => {
            const one = document.activeElement;
            const outlined = (part) => getComputedStyle(one, part).outlineStyle !== "none"
                && parseFloat(getComputedStyle(one, part).outlineWidth) > 0;
            const whole = one.tagName === "MAIN" || one === document.body;
            const words = one.ariaLabel ?? one.innerText ?? one.tagName;
            return (whole || outlined() || outlined("::after") ? "" : "unseen: ") + words.trim();
        }"""
    )
    return words


def tab_to(browsed: Browsed, words: str) -> None:
    """Press Tab until that element has the focus; every focus in between must be visible."""
    met = []
    for _ in range(60):
        browsed.page.keyboard.press("Tab")
        met.append(focused(browsed))
        assert not met[-1].startswith("unseen"), met
        if words in met[-1]:
            return
    raise AssertionError(f"{words!r} is not reached by Tab; got {met}")


def test_everything_can_be_reached_by_keyboard(built: Path, tmp_path: Path) -> None:
    with served(tmp_path / "home", built) as console, browser() as browsed:
        page = browsed.page
        console.add_job()
        page.goto(console.link)
        expect(page.locator("[data-job=hot]")).to_be_visible(timeout=PATIENCE)
        page.keyboard.press("Tab")
        assert focused(browsed) == "Skip to the content"
        page.keyboard.press("Enter")
        tab_to(browsed, "hot")
        page.keyboard.press("Enter")
        expect(page.locator(".tile[data-fact=rows]")).to_be_visible(timeout=PATIENCE)
        tab_to(browsed, "batches")
        page.keyboard.press("Home")
        expect(page.locator("[data-fact=batch]")).to_contain_text("batch 1 ")
        page.keyboard.press("ArrowRight")
        expect(page.locator("[data-fact=batch]")).to_contain_text("batch 2 ")
        page.evaluate("document.querySelector('main').focus()")
        tab_to(browsed, "Plan")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Logical plan")).to_be_visible(timeout=PATIENCE)
        page.evaluate("document.activeElement.blur()")
        tab_to(browsed, "Dark")
        page.keyboard.press("Enter")
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
        page.reload()
        expect(page.get_by_role("heading", name="Logical plan")).to_be_visible(timeout=PATIENCE)
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
        assert browsed.complaints == []
