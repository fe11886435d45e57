"""The history of a job on the page: commits and rewinding, late and dead rows, state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from tests.cli.bids import lines, pipeline_file
from tests.console.browsing import PATIENCE, Browsed, browser
from tests.console.serving import Served, served

from millstream.cli.job_process import about_run
from millstream.cli.terminal.pipelines import load
from millstream.console.page import built_page
from millstream.engine.inspection.inspect import commits, open_checkpoint
from millstream.engine.recovery.rewind import suffix_of
from millstream.jobs.queries import state_of_key
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLog
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing.local_broker import ThrowAwayBroker

NAME = "page-past"
BAD = ["no json", "<script>document.title='hacked'</script>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the job's file and its checkpoint."""
    return tmp_path_factory.mktemp("past")


@pytest.fixture(scope="module")
def past(folder: Path, broker: ThrowAwayBroker, spark: SparkSession) -> Iterator[Served]:
    """A page with a real job of two batches; the second has two late rows and two dead ones."""
    page, cluster = built_page(), Cluster(broker.address)
    assert page is not None, "the page is not built; run `make env`"
    file = pipeline_file(folder, NAME)
    loaded, pipeline = load(file)
    Topics(cluster).create(NAME)
    for rows in (lines([1, 2, 11]).splitlines(), [*lines([25, 3, 4]).splitlines(), *BAD]):
        with Producer(cluster) as producer:
            for row in rows:
                producer.send(NAME, row)
        pipeline.run(until="caught_up", kafka=cluster, checkpoint=folder / "job")
    with served(folder / "home", page, kafka=broker.address) as console:
        console.add_job(NAME, checkpoint=str(folder / "job"),
                        about=about_run(loaded, pipeline, cluster, folder / "job"))  # fmt: skip
        with JobRegistry(console.folder.registry) as registry:
            registry.update(NAME, file=file)
        run_log = RunLog(console.folder.job(NAME).run_log, "r2", 2)
        for number in open_checkpoint(folder / "job").batches("commit"):
            commit = open_checkpoint(folder / "job").read_commit(number)
            run_log.batch(commit["facts"], commit["clock"] / 1e6)
        run_log.beat(0.0, None)
        run_log.close()
        yield console


def opened(browsed: Browsed, console: Served, tab: str) -> None:
    """Open one tab of the job."""
    browsed.page.goto(console.link)
    expect(browsed.page.locator(f"[data-job={NAME}]")).to_be_visible(timeout=PATIENCE)
    browsed.page.goto(f"http://127.0.0.1:{console.port}/#/jobs/{NAME}/{tab}")


def test_late_and_dead_rows_are_shown_with_their_origin(past: Served) -> None:
    with browser() as browsed:
        page = browsed.page
        opened(browsed, past, "side-outputs?output=dead")
        expect(page.locator("li.record")).to_have_count(len(BAD), timeout=PATIENCE)
        newest = page.locator("li.record").first
        expect(newest).to_contain_text("not JSON")
        newest.get_by_role("button").first.click()
        expect(newest.locator(".body")).to_have_text(BAD[1])
        page.get_by_role("link", name="Late", exact=True).click()
        expect(page.get_by_role("heading", name="Late rows")).to_be_visible(timeout=PATIENCE)
        expect(page.locator("li.record")).to_have_count(2, timeout=PATIENCE)
        page.locator("li.record").first.get_by_role("button").first.click()
        page.get_by_role("link", name=f"{NAME}, partition 0, offset 5").click()
        expect(page.locator("li.record").first).to_have_attribute("data-place", "0@5")
        assert page.title() == f"{NAME} · Millstream"
        assert browsed.complaints == []


def test_a_key_looked_up_on_the_page_has_the_value_of_the_checkpoint(past: Served) -> None:
    step = "tumbling(auction)"
    [row] = state_of_key(past.folder, NAME, step, ["auction=7"])["rows"]
    with browser() as browsed:
        page = browsed.page
        opened(browsed, past, "state")
        page.get_by_label("key, as").fill("7")
        page.get_by_role("button", name="Look up").click()
        found = page.get_by_role("region", name="state of the key")
        expect(found.locator("tbody tr")).to_have_count(1, timeout=PATIENCE)
        expect(found).to_contain_text(f"{row['total']:g}")
        page.get_by_label("key, as").fill("auction=seven")
        page.get_by_role("button", name="Look up").click()
        expect(page.get_by_text("needs a value of type")).to_be_visible(timeout=PATIENCE)


def test_a_job_is_rewound_from_the_page_after_a_preview(past: Served, folder: Path) -> None:
    [_, second] = commits(open_checkpoint(folder / "job"))
    with browser() as browsed:
        page = browsed.page
        opened(browsed, past, "commits")
        expect(page.locator("tr[data-batch]")).to_have_count(2, timeout=PATIENCE)
        page.get_by_role("button", name="Rewind from batch 1").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"1 later batch with {second['rows']} rows")
        expect(dialog).to_contain_text(f"{NAME}.out-2, which must not exist yet")
        dialog.get_by_text("The same outputs").click()
        expect(dialog).to_contain_text("header millstream.again")
        go = dialog.get_by_role("button", name="Rewind to batch 1")
        expect(go).to_be_disabled()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        assert suffix_of(folder / "job") == ""
        page.get_by_role("button", name="Rewind from batch 1").click()
        go.click()
        expect(dialog).to_contain_text(f"{NAME} is back at batch 1", timeout=4 * PATIENCE)
        expect(dialog).to_contain_text("still stopped")
        dialog.get_by_role("button", name="Close").click()
        assert suffix_of(folder / "job") == "-2"
        page.get_by_role("button", name="Rewind to the start").click()
        expect(dialog.get_by_label("added to the name")).to_have_value("-3", timeout=PATIENCE)
        page.keyboard.press("Escape")
        assert browsed.complaints == []
    with JobRegistry(past.folder.registry, read_only=True) as registry:
        assert registry.events(NAME)[-1].event == "rewound"
