"""Alerts over the API: listed with their notifications, silenced and unsilenced."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.jobs.registry import JobRegistry
from millstream.sinks.alerts.writer import NotificationWriter
from millstream.sinks.spec import Opening, Staged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.serving import ApiResponse, Served

EVIL = "<script>\u202e" + "x" * 5_000


@pytest.fixture
def alerted(console: Served, tmp_path: Path) -> Served:
    """A job whose alert `pages fail` fires for two pages, one with a hostile name."""
    folder = tmp_path / "checkpoint"
    console.add_job(checkpoint=str(folder))
    checkpoint = Checkpoint(folder)
    checkpoint.open("hot", 256)
    sink = ms.Alert("pages fail", when="n > 5", to=())
    table = pa.table({"page": ["/", EVIL, "/cart"], "n": [9, 8, 1], "_time": [1_000_000] * 3})
    writer = NotificationWriter(Opening("hot", checkpoint.job, checkpoint.incarnation, (sink,)))
    writer.recover(None)
    staged = Staged("pages fail", "result", sink, ("page",), 3, lambda: iter([table]))
    writer.write("i", 1, [staged])
    writer.close()
    checkpoint.close()
    return console


def silenced(console: Served, wish: dict[str, Any], name: str = "pages%20fail") -> ApiResponse:
    body = json.dumps(wish).encode()
    return console(f"/api/alerts/hot/{name}/silence", "POST", body=body)


def test_alerts_are_listed_bounded_and_harmless(alerted: Served) -> None:
    answer = alerted("/api/alerts")
    rows = answer.json
    assert [(row["state"], row["alert"], row["row"]["n"]) for row in rows] == [
        ("firing", "pages fail", 9), ("firing", "pages fail", 8),
    ]  # fmt: skip
    assert rows[0]["key"] == {"page": "/"}
    assert len(answer.body) < 10_000
    assert "\u202e" not in rows[1]["key"]["page"]
    assert alerted("/api/alerts?job=hot&alert=other").json == []
    assert alerted("/api/alerts/hot/pages%20fail/notifications").status == 200


def test_an_alert_is_silenced_for_the_given_time(alerted: Served) -> None:
    done = silenced(alerted, {"for": "1 hour"})
    assert done.status == 200
    until = datetime.fromisoformat(done.json["silenced_until"])
    assert abs(until - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=5)
    assert {row["silenced_until"] is None for row in alerted("/api/alerts").json} == {False}
    assert silenced(alerted, {"for": None}).json["silenced_until"] is None
    assert {row["silenced_until"] for row in alerted("/api/alerts").json} == {None}
    with JobRegistry(alerted.folder.registry, read_only=True) as registry:
        changes = [event.detail for event in registry.events("hot") if event.event == "alert"]
    assert changes == [f"pages fail: silenced until {done.json['silenced_until']}",
                    "pages fail: no longer silenced"]  # fmt: skip


def test_a_single_key_of_an_alert_can_be_silenced(alerted: Served) -> None:
    assert silenced(alerted, {"for": "1 hour", "key": {"page": "/"}}).status == 200
    quiet = {row["row"]["n"]: row["silenced_until"] for row in alerted("/api/alerts").json}
    assert [quiet[9] is None, quiet[8] is None] == [False, True]


@pytest.mark.parametrize(
    ("wish", "name", "status", "sentence"),
    [
        ({"for": "1 hour"}, "other", 404, "hot has no alert 'other'; its alerts are pages fail"),
        ({"for": "a while"}, "pages%20fail", 400, "for needs"),
        ({"for": "90 days"}, "pages%20fail", 400, "from 1 second to 30 days"),
        ({"for": None}, "pages%20fail", 404, "must be silenced to end its silence"),
        ({}, "pages%20fail", 400, "a silence needs `for`"),
        (
            {"for": "1 hour", "key": {"page": "no"}},
            "pages%20fail",
            404,
            "needs one of its active keys",
        ),
        ({"for": 3600}, "pages%20fail", 400, "for has the wrong type"),
    ],
)
def test_an_invalid_silence_gets_one_sentence(
    alerted: Served, wish: dict[str, Any], name: str, status: int, sentence: str
) -> None:
    asked = silenced(alerted, wish, name)
    assert (asked.status, sentence in asked.json["error"]) == (status, True), asked.body
