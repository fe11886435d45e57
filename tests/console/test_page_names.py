"""Names chosen by users are shown on the page with every character visible."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE, Browsed, browser
from tests.console.serving import ABOUT, PLAN, Served, facts, served

from millstream.console.page import built_page
from millstream.jobs.registry import JobRegistry, JobRow
from millstream.jobs.reports.run_log import RunLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STRANGE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
EVIL = "\u202egpj\u2066\u200b\u200f\x07"
WRITTEN = "\\u202egpj\\u2066\\u200b\\u200f\\u0007"
EVERYTHING = """() => {
  const found = [document.title];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_ALL);
  for (let node = walk.currentNode; node; node = walk.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE) found.push(node.data);
    else if (node.nodeType === Node.ELEMENT_NODE)
      for (const name of ['title', 'aria-label', 'alt', 'placeholder', 'aria-description', 'label'])
        if (node.hasAttribute(name)) found.push(node.getAttribute(name));
  }
  return found;
}"""


@pytest.fixture
def page_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A console with a job in which every name is hostile."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    page = built_page()
    assert page is not None, "the page is not built; run `make env`"
    with served(tmp_path / "home", page) as serving:
        hostile_job(serving)
        yield serving


def hostile_job(console: Served) -> None:
    def named(word: str) -> str:
        return f"{word}{EVIL}"

    job = JobRow(name="hot", application=named("shop"), owner=named("ann"), file=named("hot.py"),
                 pipeline=named("hot"), kafka=None, checkpoint="nowhere", lane=None,
                 submitted=time.time(), since=time.time(), wanted="stopped", state="stopped",
                 reason=named("why"))  # fmt: skip
    with JobRegistry(console.folder.registry) as registry:
        registry.add(job)
    console.folder.job("hot").path.mkdir(parents=True, exist_ok=True)
    plan = hostile({**PLAN})
    run_log = RunLog(console.folder.job("hot").run_log, "r1", 1)
    run_log.about({**ABOUT, "topics": {named("bids"): named("bids")}, "writes": [named("hot")],
                 "plan": plan, "leaving": [named("one transaction")]})  # fmt: skip
    for batch in range(1, 4):
        batch_facts = facts(batch)
        batch_facts["outputs"] = {named("hot"): 3}
        batch_facts["read"] = {named("bids"): 100}
        batch_facts["watermarks"] = {named("bids"): "2026-01-01T00:00:00+00:00"}
        batch_facts["steps"] = {
            named(step): counts for step, counts in batch_facts["steps"].items()
        }
        run_log.batch(batch_facts)
    run_log.beat(time.time(), {named("bids"): {0: 10}})
    run_log.close()


def hostile(value: Any) -> Any:
    """Every text of a plan with the hostile characters at its end."""
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, dict):
        return {name: hostile(one) for name, one in value.items()}
    return [hostile(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("width", [390, 1280])
def test_no_name_can_hide_or_reverse_text(page_console: Served, width: int, tmp_path: Path) -> None:
    with browser(width=width) as browsed:
        page = browsed.page
        page.goto(page_console.link)
        expect(page.locator("[data-job=hot]")).to_be_visible(timeout=PATIENCE)
        seen = read(browsed)
        assert any(f"shop{WRITTEN}" in text for text in seen)
        page.screenshot(path=tmp_path / f"jobs-{width}.png", full_page=True)
        page.locator("[data-job=hot] a").click()
        expect(page.get_by_role("link", name="Plan", exact=True).first).to_be_visible(
            timeout=PATIENCE
        )
        for name in ("Plan", "Event time", "Log", "State"):
            link = page.get_by_role("link", name=name, exact=True)
            if link.count():
                link.first.click()
                page.wait_for_timeout(1_000)
                seen += read(browsed)
                assert browsed.overflow() <= 0
                page.screenshot(
                    path=tmp_path / f"{name.replace(' ', '-')}-{width}.png", full_page=True
                )
        assert any(f"read bids{WRITTEN}" in text for text in seen)
        assert any(f"one transaction{WRITTEN}" in text for text in seen)


def test_a_name_in_the_address_is_escaped_in_the_title(page_console: Served) -> None:
    with browser() as browsed:
        page = browsed.page
        page.goto(page_console.link)
        expect(page.locator("[data-job=hot]")).to_be_visible(timeout=PATIENCE)
        page.goto(f"http://127.0.0.1:{page_console.port}/#/jobs/a%E2%80%AEb")
        expect(page).to_have_title(re.compile("u202e"), timeout=PATIENCE)
        read(browsed)


def read(browsed: Browsed) -> list[str]:
    """All text of the page; none of it may be hidden or reversed."""
    seen: list[str] = browsed.page.evaluate(EVERYTHING)
    assert [text for text in seen if STRANGE.search(text)] == []
    return seen
