"""The health of jobs as people see it: in lists, on the page, in metrics, alerts and exit codes."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.cli.bids import lines
from tests.console.browsing import browser
from tests.jobs.stacks import Stack, new_stack, until

from millstream.jobs.logs import last_lines
from millstream.jobs.registry import NEED_ATTENTION, WORKING
from millstream.testing import broker as a_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psutil

    from millstream.testing.local_broker import ThrowAwayBroker

SECONDS = 5.0
BIDS = 'ms.Topic("bids", schema="auction long, price double, ts timestamp")'
COPY = f"""import millstream as ms

bids = ms.read({BIDS})
alerts = [ms.JobAlert("waiting"), ms.JobAlert("down")]
pipeline = ms.Pipeline("copy", bids.to(ms.Topic("out")), engine="driver", alerts=alerts)
"""
WRONG = """import millstream as ms

rows = ms.read({source})
pipeline = ms.Pipeline({name!r}, rows.to({sink}), engine="driver")
"""


@dataclass
class Seen:
    """What one look at the stack shows of the job `copy`."""

    state: str
    shown: str
    metric: str | None
    ready: int
    alerts: set[str]
    outages: list[dict[str, Any]]


@pytest.fixture
def mortal() -> Iterator[ThrowAwayBroker]:
    """A broker for this test, which kills it."""
    with a_broker() as running:
        yield running


@pytest.fixture
def own(mortal: ThrowAwayBroker, tmp_path: Path) -> Iterator[Stack]:
    """A stack on that broker."""
    with new_stack(tmp_path / "home", mortal.address) as stack:
        yield stack


def answer(url: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def look(stack: Stack, page: str) -> Seen:
    [row] = json.loads(answer(f"{page}api/jobs", stack.folder.token())[1])
    [listed] = stack.millstream.ok("jobs", "list", "-o", "json").json
    ready, _ = answer(f"{page}readyz")
    metrics = answer(f"{page}metrics")[1].splitlines()
    states = [line for line in metrics if line.startswith("millstream_job_state{")]
    [state] = [line.split('state="')[1].split('"')[0] for line in states if line.endswith(" 1")]
    firing = {alert["alert"]
              for alert in json.loads(answer(f"{page}api/alerts", stack.folder.token())[1])
              if alert["state"] == "firing"}  # fmt: skip
    return Seen(row["state"], listed["state"], state, ready, firing, row["outages"])


def everywhere(seen: Seen, *states: str, alarmed: bool) -> bool:
    """Whether every place shows one of these states."""
    return (
        {seen.state, seen.shown, seen.metric} <= {*states}
        and seen.ready == (503 if alarmed else 200)
        and seen.alerts == ({"waiting", "down"} if alarmed else set())
    )


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_job_waits_for_a_killed_broker_in_every_place_within_five_seconds(
    own: Stack, mortal: ThrowAwayBroker, tmp_path: Path
) -> None:
    page = own.up()
    file = tmp_path / "copied.py"
    file.write_text(COPY)
    for name in ("bids", "out"):
        own.millstream.ok("topics", "create", name)
    own.millstream.ok("produce", "bids", stdin=lines([1, 2, 3]))
    own.millstream.ok("jobs", "submit", str(file))
    until(lambda: everywhere(look(own, page), *WORKING, alarmed=False), "a job that works")

    with browser() as browsed:
        view = browsed.page
        view.goto(own.millstream.ok("status", "-o", "json").json["page"])
        tile = view.locator(".tile", has_text="need attention").locator(".value")
        pill = view.locator("[data-job=copy] [data-fact=state]")
        expect(tile).to_have_text("0")
        began = time.monotonic()
        mortal.kill()
        expect(pill).to_have_text("waiting")
        expect(tile).to_have_text("1")
        on_page = time.monotonic() - began
        until(lambda: everywhere(look(own, page), "waiting", alarmed=True), "waiting everywhere")
        noticed = time.monotonic() - began
        expect(view.locator("[data-fact=outage]")).to_contain_text(f"Kafka at {own.kafka}")
        view.screenshot(path=str(tmp_path / "waiting.png"))
        [outage] = look(own, page).outages
        refused = own.millstream("jobs", "restart", "copy")
        assert (refused.code, own.job("copy").state) == (5, "waiting"), refused

        mortal.start()
        began = time.monotonic()
        expect(pill).not_to_have_text("waiting")
        until(lambda: everywhere(look(own, page), *WORKING, alarmed=False), "a job that works")
        healed = time.monotonic() - began
        expect(tile).to_have_text("0")
        expect(view.locator("[data-fact=outage]")).to_have_count(0)
    print(f"\n  on the page after {on_page:.1f} s, everywhere after {noticed:.1f} s, "
          f"healed everywhere after {healed:.1f} s")  # fmt: skip
    assert on_page < SECONDS
    assert noticed < SECONDS
    assert healed < SECONDS
    assert outage["system"] == f"Kafka at {own.kafka}"
    assert outage["since"] <= outage["next_try"]
    logged = [json.loads(line) for line in last_lines(own.folder.job("copy").log, 100)]
    assert [line["event"] for line in logged].count("waiting") == 2, logged  # one for each run
    assert [line["event"] for line in logged].count("answers again") == 1, logged
    own.millstream.ok("produce", "bids", stdin=lines([4]))
    own.millstream.ok("jobs", "stop", "copy")


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_an_idle_job_whose_java_process_dies_is_started_again(
    stack: Stack, topic: str, tmp_path: Path
) -> None:
    stack.up()
    file = tmp_path / "idle.py"
    source = f'ms.Topic({topic!r}, schema="n long")'
    out = f"ms.Topic({topic + '.out'!r})"
    file.write_text(WRONG.format(name=topic, source=source, sink=out).replace("driver", "spark"))
    for name in (topic, f"{topic}.out"):
        stack.millstream.ok("topics", "create", name)
    stack.millstream.ok("jobs", "submit", str(file))

    def java() -> psutil.Process | None:
        holder = stack.holder(topic)
        return next((child for child in ([] if holder is None else holder.children())
                     if child.name() == "java"), None)  # fmt: skip

    log = stack.folder.job(topic).log
    until(lambda: '"event": "spark"' in log.read_text(), "Spark", story=lambda: stack.story(topic))
    first = java()
    assert first is not None
    first.kill()
    until(
        lambda: stack.job(topic).restarts == 1,
        "another run",
        60.0,
        story=lambda: stack.story(topic),
    )
    assert "Spark's Java process has ended" in stack.story(topic)
    stack.await_state(topic, *WORKING)
    assert stack.job(topic).failures == 0
    stack.millstream.ok("jobs", "stop", topic)


def wrong_jobs(folder: Path, database: str) -> dict[str, tuple[str, str, int, str]]:
    """Jobs that can never work: source, sink, exit code, what the message names."""
    (folder / "in").mkdir()
    (folder / "file").write_text("")
    rows = f'ms.Files({str(folder / "in")!r}, format="json", schema="n long")'
    out = f'ms.Files({str(folder / "out")!r}, format="json")'
    user, _, rest = database.partition("@")
    wrong_password = f"{user.rpartition(':')[0]}:wrong@{rest}"

    def files(path: str) -> str:
        return f'ms.Files({str(folder / path)!r}, format="json", schema="n long")'

    return {
        "no-topic": ('ms.Topic("nowhere", schema="n long")', out, 4, "nowhere"),
        "no-folder": (files("nowhere"), out, 4, f"no folder {folder / 'nowhere'}"),
        "no-glob": (files("nowhere/*.json"), out, 4, f"no folder {folder / 'nowhere'}"),
        "below-a-file": (files("file/in"), out, 4, f"the file {folder / 'file'} above it"),
        "sink-below-a-file": (rows, f'ms.Files({str(folder / "file" / "out")!r}, format="json")', 3,
                              f"the file {folder / 'file'} above it"),
        "sqlite-below-a-file": (rows, f'ms.Sqlite({str(folder / "file" / "a.db")!r}, "t")', 3,
                                "got a file"),
        "wrong-password": (rows, f'ms.Postgres("t", url={wrong_password!r})', 5,
                           "password authentication failed"),
        "no-database": (rows, f'ms.Postgres("t", url={database + "x"!r})', 5, "does not exist"),
    }  # fmt: skip


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_what_cannot_heal_fails_at_once_with_its_reason_by_run_and_by_submit_alike(
    stack: Stack, tmp_path: Path, database: str
) -> None:
    stack.up()
    wrong = wrong_jobs(tmp_path, database)
    for name, (source, sink, code, named) in wrong.items():
        file = tmp_path / f"{name}.py"
        file.write_text(WRONG.format(name=name, source=source, sink=sink))
        checkpoint = str(tmp_path / "checkpoints" / name)
        ran = stack.millstream("run", str(file), "--checkpoint", checkpoint)
        assert (ran.code, named in ran.err) == (code, True), (name, ran)
        said = stack.millstream("jobs", "submit", str(file))
        assert (said.code, named in said.err) == (code, True), (name, said)
        job = stack.job(name)
        assert (job.state, job.restarts) == ("failed", 0), stack.story(name)
        assert named in str(job.reason)
    assert "failed" in NEED_ATTENTION


@pytest.mark.kafka
def test_what_may_heal_is_waited_for_and_starts_by_itself(stack: Stack, tmp_path: Path) -> None:
    stack.up()
    file = tmp_path / "early.py"
    source = 'ms.Memory([{"n": 1}])'
    nowhere = "postgresql://me:x@no-such-host.invalid/db"
    file.write_text(WRONG.format(name="early", source=source,
                                 sink=f'ms.Postgres("t", url={nowhere!r})'))  # fmt: skip
    said = stack.millstream("jobs", "submit", str(file))
    assert said.code == 5, said
    assert "it starts by itself when that is there" in said.err
    job = stack.job("early")
    assert (job.state, job.restarts) == ("waiting", 0)
    assert str(job.reason).startswith("waiting for the database postgresql://me:***@no-such-host")
    stack.millstream.ok("jobs", "stop", "early")
    assert stack.job("early").state == "stopped"
