"""Alerts on the page: counted in the navigation, silenced and unsilenced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE, browser
from tests.console.serving import Served, served

import millstream as ms
from millstream.console.page import built_page
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.jobs.alerts.alerts import alerts
from millstream.sinks.alerts.writer import NotificationWriter
from millstream.sinks.spec import Opening, Staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = "/<img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture
def alerted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A page with a job whose alert fires for two of its pages, one with a hostile name."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    page = built_page()
    assert page is not None, "the page is not built; run `make env`"
    checkpoint = Checkpoint(tmp_path / "job")
    checkpoint.open("hot", 256)
    sink = ms.Alert("pages fail", when="n > 5", to=())
    table = pa.table({"page": ["/", HOSTILE, "/cart"], "n": [9, 8, 1], "_time": [1_000_000] * 3})
    writer = NotificationWriter(Opening("hot", checkpoint.job, checkpoint.incarnation, (sink,)))
    writer.recover(None)
    staged = Staged("pages fail", "result", sink, ("page",), 3, lambda: iter([table]))
    writer.write("i", 1, [staged])
    writer.close()
    checkpoint.close()
    with served(tmp_path / "home", page) as console:
        console.add_job(checkpoint=str(tmp_path / "job"))
        yield console


def test_an_alert_can_be_seen_silenced_and_unsilenced(alerted: Served) -> None:
    def quiet() -> list[bool]:
        return [row["silenced_until"] is not None for row in alerts(alerted.folder)]

    with browser() as browsed:
        page = browsed.page
        page.goto(alerted.link)
        expect(page.locator("nav .tally")).to_have_text("2 firing", timeout=PATIENCE)
        page.get_by_role("link", name="Alerts").click()
        expect(page.locator(".tile[data-fact=firing] .value")).to_have_text("2", timeout=PATIENCE)
        shown = page.locator("[data-alert='pages fail']")
        expect(shown).to_contain_text(HOSTILE)
        expect(shown).to_contain_text("n > 5")

        shown.get_by_role("button", name="Silence …", exact=True).click()
        page.get_by_role("dialog").get_by_label("for").select_option("8 hours")
        page.get_by_role("button", name="Silence for 8 hours").click()
        expect(shown.get_by_role("button", name="End silence")).to_be_visible(timeout=PATIENCE)
        assert quiet() == [True, True]
        shown.get_by_role("button", name="End silence").click()
        expect(shown.get_by_text("silenced until")).to_have_count(0, timeout=PATIENCE)
        assert quiet() == [False, False]
        assert page.title() == "Alerts · Millstream"
        assert page.locator("main img").count() == 0
        assert browsed.complaints == []
