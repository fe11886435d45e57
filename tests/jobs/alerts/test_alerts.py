"""Alerts of the stack: listing, silencing, and alerts on jobs themselves."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.cli.command import Command
from tests.sinks.receiving import Receiver

import millstream as ms
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.errors import InvalidInput, InvalidSpec, NotFound
from millstream.jobs.alerts.alerts import alerts, job_alerts_file, notifications, silence, unsilence
from millstream.jobs.alerts.rules import AlertWatch, rules_of
from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.logs import Log, last_lines
from millstream.jobs.registry import JobRegistry, JobRow
from millstream.jobs.reports.run_log import RunLog
from millstream.sinks.alerts import writer as alert_writer
from millstream.sinks.alerts.outbox import Outbox
from millstream.sinks.alerts.store import NotificationStore
from millstream.sinks.alerts.writer import NotificationWriter
from millstream.sinks.spec import Opening, Staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackFolder:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(alert_writer, "_CLOSE_SECONDS", 300.0)
    folder = stack_folder()
    folder.make()
    return folder


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def submitted(folder: StackFolder, name: str = "shop") -> JobRow:
    row = JobRow(name=name, application="shop", owner="ann", file="shop.py", pipeline=name,
                 kafka=None, checkpoint=str(folder.path.parent / "jobs" / name), lane=None,
                 submitted=1.0, state="running")  # fmt: skip
    with JobRegistry(folder.registry) as registry:
        registry.add(row)
    folder.job(name).path.mkdir()
    return row


def fired(folder: StackFolder, *rows: tuple[str, int], to: Any = ()) -> ms.Alert:
    """Write rows of (page, n) to an alert of the job `shop`."""
    checkpoint = Checkpoint(folder.path.parent / "jobs" / "shop")
    checkpoint.open("shop", 256)
    sink = ms.Alert("pages fail", when="n > 5", to=to)
    table = pa.table({"page": [page for page, _ in rows], "n": [n for _, n in rows],
                      "_time": [1_000_000] * len(rows)})  # fmt: skip
    writer = NotificationWriter(Opening("shop", checkpoint.job, checkpoint.incarnation, (sink,)))
    writer.recover(None)
    writer.write("i", 1, [Staged("pages fail", "result", sink, ("page",), table.num_rows,
                                 lambda: iter([table]))])  # fmt: skip
    writer.close()
    checkpoint.close()
    return sink


# -- reading and silencing ------------------------------------------------------------


def test_an_alert_is_listed_with_the_state_of_its_keys(
    folder: StackFolder, receiver: Receiver
) -> None:
    submitted(folder)
    assert alerts(folder) == []
    fired(folder, ("/", 9), ("/cart", 1), to=ms.Webhook(receiver.url, allow_private=True))
    [row] = alerts(folder)
    episode = row.pop("episode")
    assert receiver.posts[0].id == f"msg_{episode}_firing"
    assert row == {
        "job": "shop", "alert": "pages fail", "on": "rows", "when": "n > 5", "for": "0 seconds",
        "key": {"page": "/"}, "state": "firing", "since": "1970-01-01T00:00:01.000Z",
        "row": {"page": "/", "n": 9}, "silenced_until": None, "notified": "yes", "problem": None,
        "to": [f"Webhook('{receiver.url.split('hook')[0]}***')"], "untracked": 0,
    }  # fmt: skip
    [sent] = notifications(folder, "shop", "pages fail")
    assert (sent["state"], sent["outcome"], sent["tries"]) == ("firing", "sent", 1)


def test_an_alert_without_active_keys_is_ok(folder: StackFolder) -> None:
    submitted(folder)
    fired(folder, ("/", 1))
    [row] = alerts(folder, "shop")
    assert (row["state"], row["key"], row["notified"]) == ("ok", None, None)
    with pytest.raises(NotFound, match="pages fail"):
        notifications(folder, "shop", "pages fall")


def test_a_failed_notification_shows_its_reason(folder: StackFolder, receiver: Receiver) -> None:
    receiver.answering(404)
    submitted(folder)
    fired(folder, ("/", 9), to=ms.Webhook(receiver.url, allow_private=True))
    [row] = alerts(folder)
    assert row["notified"] == "failed"
    assert "the status 404" in row["problem"]


def test_a_silence_is_shown_and_can_be_ended(folder: StackFolder) -> None:
    submitted(folder)
    fired(folder, ("/", 9), ("/cart", 9))
    done = silence(folder, "shop", "pages fail", seconds=60, key={"page": "/"})
    assert [row["silenced_until"] for row in alerts(folder)] == [done["silenced_until"], None]
    silence(folder, "shop", "pages fail", seconds=3600)
    assert None not in [row["silenced_until"] for row in alerts(folder)]
    unsilence(folder, "shop", "pages fail")
    unsilence(folder, "shop", "pages fail", key={"page": "/"})
    assert [row["silenced_until"] for row in alerts(folder)] == [None, None]
    with pytest.raises(NotFound, match="must be silenced"):
        unsilence(folder, "shop", "pages fail")
    with pytest.raises(NotFound, match="needs one of its active keys"):
        silence(folder, "shop", "pages fail", seconds=60, key={"page": "/x"})
    with pytest.raises(NotFound, match="the job shop has no alert 'x'; its alerts are pages fail"):
        silence(folder, "shop", "x", seconds=60)
    with pytest.raises(NotFound, match="no job named 'shops'"):
        silence(folder, "shops", "pages fail", seconds=60)
    for length in (0, -1, 1e9, float("nan"), "1"):
        with pytest.raises(InvalidInput, match="from 1 second to 30 days"):
            silence(folder, "shop", "pages fail", seconds=length)  # type: ignore[arg-type]


def test_the_command_lists_shows_and_silences(folder: StackFolder) -> None:
    run = Command(None)
    submitted(folder)
    assert "no alerts" in run.ok("alerts", "list").err
    fired(folder, ("/", 9), ("/c\x1b[31m", 9))
    listed = run.ok("alerts", "list")
    assert "pages fail" in listed.out
    assert "\x1b" not in listed.out
    assert [row["state"] for row in run.ok("alerts", "list", "--firing", "-o", "json").json] == [
        "firing", "firing",
    ]  # fmt: skip
    said = run.ok("alerts", "silence", "shop", "pages fail", "--key", "page=/", "--for", "1 day")
    assert "is silenced until" in said.err
    shown = run.ok("alerts", "show", "shop", "pages fail", "-o", "json").json
    assert [row["silenced_until"] is None for row in shown["keys"]] == [False, True]
    assert shown["when"] == "n > 5"
    assert "n > 5" in run.ok("alerts", "show", "shop", "pages fail").out
    assert (
        "no longer silenced"
        in run.ok("alerts", "unsilence", "shop", "pages fail", "-k", "page=/").err
    )
    for words, code in (
        (("show", "shop", "x"), 4), (("show", "x", "x"), 4), (("silence", "shop", "x"), 4),
        (("silence", "shop", "pages fail", "--for", "long"), 3),
        (("silence", "shop", "pages fail", "--key", "x"), 2),
    ):  # fmt: skip
        refused = run("alerts", *words)
        assert refused.code == code, refused
        assert refused.err.count("\n") == 1


def test_a_damaged_store_is_named(folder: StackFolder) -> None:
    submitted(folder)
    job_alerts_file(folder).write_bytes(b"no database" * 1000)
    refused = Command(None)("alerts", "list")
    assert refused.code == 6
    assert "alerts.db must be a database of alerts" in refused.err
    assert refused.err.count("\n") == 1


# -- alerts on jobs ------------------------------------------------------------------


class Watched:
    """A registered job with its run log, and the supervisor's `AlertWatch` on it."""

    def __init__(self, folder: StackFolder, *rules: ms.JobAlert, late: float | None = None) -> None:
        self.folder, self.lag = folder, 0
        submitted(folder)
        views = ms.read(ms.Topic("views", schema="page string, ts timestamp"), time="ts")
        counts = views.by("page").window(ms.tumbling("5 seconds"))
        if late is not None:
            counts = counts.late(alert_above=late)
        out = counts.agg(n=ms.count()).to(ms.Topic("counts"))
        pipeline = ms.Pipeline("shop", out, alerts=list(rules))
        self.run_log = RunLog(folder.job("shop").run_log, "run", 1)
        self.run_log.about({"alerts": json.loads(json.dumps(rules_of(pipeline)))})
        self.run_log.beat(0.0, None)
        self.log = Log(folder.log("supervisor"))
        self.watch = AlertWatch(folder, lambda job: self.lag, self.log)
        self.store = NotificationStore(job_alerts_file(folder))
        self.batches = 0

    def look(self) -> list[tuple[str, str]]:
        """Evaluate the rules once; return the alerts with their states."""
        with JobRegistry(self.folder.registry, read_only=True) as registry:
            self.watch.look(registry, self.store)
        Outbox(self.store, self.watch.recipients).send_due()
        return [(row["alert"], row["state"]) for row in alerts(self.folder, "shop")]

    def batch(self, **counts: int) -> None:
        self.batches += 1
        steps = {"tumbling(page)": {"in": counts.get("rows", 0), "late": counts.get("late", 0)}}
        self.run_log.batch({"batch": self.batches, "rows": 0, "late": 0, "dead": 0, "extra": 0,
                          "bytes": 0, "seconds": 0.1, "outputs": {}, "phases": {}, **counts,
                          "steps": steps})  # fmt: skip
        self.run_log.beat(0.0, None)

    def set_state(self, state: Any, reason: str | None = None) -> None:
        with JobRegistry(self.folder.registry) as registry:
            registry.update("shop", state=state, reason=reason)

    def close(self) -> None:
        self.store.close()
        self.run_log.close()
        self.log.close()


def test_lag_above_a_limit_fires_and_notifies(
    folder: StackFolder, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_HOOK", receiver.url)
    hook = ms.Webhook("${env:OPS_HOOK}", allow_private=True)
    watched = Watched(folder, ms.JobAlert("lag", above=100, to=hook))
    assert watched.look() == [("lag above 100", "ok")]
    watched.lag = 101
    assert watched.look() == [("lag above 100", "firing")]
    assert watched.look() == [("lag above 100", "firing")]
    [post] = receiver.posts
    assert post.data["row"] == {"lag": 101}
    assert (post.data["job"], post.data["alert"]) == ("shop", "lag above 100")
    watched.lag = 100
    assert watched.look() == [("lag above 100", "resolved")]
    assert [post.data["state"] for post in receiver.posts] == ["firing", "resolved"]
    watched.lag = 1000
    assert watched.look() == [("lag above 100", "pending")]
    watched.close()
    assert "alert firing" in "".join(last_lines(folder.log("supervisor"), 10))


def test_the_supervisor_alerts_on_a_dead_job(folder: StackFolder) -> None:
    watched = Watched(folder, ms.JobAlert("down"), ms.JobAlert("failed", for_="1 hour"))
    watched.set_state("waiting", "waiting for Kafka at k:9092: no answer")
    assert watched.look() == [("down", "firing"), ("failed", "ok")]
    [row] = alerts(folder, "shop", "down")
    assert row["row"] == {"state": "waiting", "reason": "waiting for Kafka at k:9092: no answer"}
    assert row["on"] == "job"
    watched.set_state("failed")
    assert watched.look() == [("down", "firing"), ("failed", "pending")]
    watched.set_state("running")
    assert watched.look() == [("down", "resolved"), ("failed", "ok")]
    silence(folder, "shop", "down", seconds=60)
    assert alerts(folder, "shop", "down")[0]["silenced_until"] is not None
    watched.close()


def test_shares_of_late_and_dead_rows_cover_the_last_minute(folder: StackFolder) -> None:
    watched = Watched(folder, ms.JobAlert("dead", above=0.1), late=0.5)
    watched.batch(rows=100, dead=10, late=50)
    assert [state for _, state in watched.look()] == ["ok", "ok"]
    watched.batch(rows=10, dead=2, late=9)
    assert sorted(watched.look()) == [
        ("dead above 0.1", "firing"), ("late rows of tumbling(page)", "firing"),
    ]  # fmt: skip
    [row] = alerts(folder, "shop", "dead above 0.1")
    assert row["row"] == {"rows": 110, "dead": 12, "share": 0.1091}
    watched.close()


def test_an_alert_is_removed_with_its_rule_or_its_job(
    folder: StackFolder,
) -> None:
    watched = Watched(folder, ms.JobAlert("lag", above=1), ms.JobAlert("degraded"))
    watched.lag = 5
    watched.look()
    watched.run_log.about({"alerts": [ms.JobAlert("degraded").to_json()]})
    watched.run_log.beat(0.0, None)
    assert watched.look() == [("degraded", "ok")]
    with JobRegistry(folder.registry) as registry:
        registry.forget("shop")
        watched.watch.look(registry, watched.store)
    assert watched.store.rows("SELECT alert FROM alerts") == []
    watched.close()


def test_a_plan_names_the_alerts_on_the_job_and_no_secret() -> None:
    out = ms.read(ms.Topic("t", schema="n long")).to(ms.Topic("u"))
    mail = ms.Email("ops@example.com", url="smtps://me:${env:CANARY}@mail.example")
    rules = [ms.JobAlert("lag", above=10, for_="1 minute", to=mail), ms.JobAlert("degraded")]
    plan = ms.Pipeline("p", out, alerts=rules).plan()
    assert "JobAlert('lag above 10', when lag above 10 for 1 minute → Email(" in plan
    with pytest.raises(InvalidSpec, match="each alert needs a unique name"):
        ms.Pipeline("p", out, alerts=[ms.JobAlert("degraded"), ms.JobAlert("degraded")])
    with pytest.raises(InvalidSpec, match=r"a list of ms\.JobAlert"):
        ms.Pipeline("p", out, alerts=[ms.Alert("a", when="n > 1")])  # type: ignore[list-item]


def test_the_watch_skips_a_rule_it_cannot_read(folder: StackFolder) -> None:
    watched = Watched(folder, ms.JobAlert("degraded"))
    rules = [{"fact": "moon", "name": "x", "above": None}, ms.JobAlert("degraded").to_json()]
    watched.run_log.about({"alerts": rules})
    watched.run_log.beat(0.0, None)
    assert watched.look() == [("degraded", "ok")]
    watched.close()


def test_the_thread_of_the_watch_evaluates_rules(folder: StackFolder) -> None:
    watched = Watched(folder, ms.JobAlert("lag", above=1))
    watched.lag = 5
    watched.watch.start()
    deadline = time.monotonic() + 60
    while [row["state"] for row in alerts(folder)] != ["firing"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    watched.watch.close()
    watched.close()
