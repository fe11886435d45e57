"""`up`, `status`, `demo`, `down` and `doctor`: a newcomer's first commands."""

from __future__ import annotations

import json
import shutil
import socket
from collections import namedtuple
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.cli.command import Command

from millstream.cli.demo.views import page_views, shop_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Command]:
    """The command with an empty home."""
    command = Command(None, {"MILLSTREAM_HOME": str(tmp_path / "home")})
    yield command
    command("down")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_up_status_work_and_down(newcomer: Command) -> None:
    assert newcomer.ok("status", "-o", "json").json["running"] is False
    assert newcomer("topics", "list").code == 5
    port = free_port()

    came = newcomer.ok("up", "--port", str(port), "-o", "json")
    assert came.json["address"] == f"127.0.0.1:{port}"
    assert came.json["answering"] is True
    assert "millstream topics create" in came.err

    again = newcomer.ok("up", "-o", "json")
    assert again.json == came.json
    assert "starting" not in again.err
    other = newcomer("up", "--port", str(free_port()))
    assert (other.code, f"got one at 127.0.0.1:{port}" in other.err) == (2, True)
    newcomer.ok("topics", "create", "clicks")
    newcomer.ok("produce", "clicks", "--value", "1")
    assert newcomer.ok("tail", "clicks", "--until-end", "--values").out == "1\n"
    said = newcomer.ok("status")
    assert "running     yes\n" in said.out
    assert "topics      1\n" in said.out

    now = newcomer.ok("status", "-o", "json").json
    assert newcomer.ok("down").err.splitlines()[-1] == "the local broker has stopped"
    assert not alive(now["pid"])
    assert not alive(now["supervisor"])
    assert newcomer.ok("down").err == "no local broker was running\n"
    assert "start it with `millstream up`" in newcomer.ok("status").err


@pytest.mark.parametrize("port", ["0", "70000", "-1"])
def test_an_invalid_port_is_refused(port: str, newcomer: Command) -> None:
    said = newcomer("up", "--port", port)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"--port needs a number from 1 to 65535; got {port}" in said.err


def test_a_taken_port_is_named_and_nothing_is_left_running(newcomer: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = newcomer("up", "--port", str(port))
        assert newcomer("up", "--only-broker", "--port", str(port)).code == 5
    assert said.code == 5
    assert str(port) in said.err
    assert newcomer.ok("status", "-o", "json").json["running"] is False


def test_the_shops_views_are_the_same_for_one_seed() -> None:
    def day(seed: int) -> list[dict[str, object]]:
        views = page_views(seed)
        return [next(views) for _ in range(500)]

    assert day(1) == day(1) != day(2)
    pages = {view["page"] for view in day(1)}
    assert pages == {"/", "/search", "/product", "/cart", "/checkout", "/thanks"}


def test_the_shops_late_and_broken_records_are_the_same_for_one_seed() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def day(seed: int) -> list[bytes]:
        return [record.value(now) for record in islice(shop_records(seed), 3000)]

    assert day(1) == day(1) != day(2)
    records = list(islice(shop_records(1), 3000))
    assert 10 < sum(record.late for record in records) < 60
    wrong = [record for record in records if record.wrong]
    assert 30 < len(wrong) < 400
    fields = json.loads(wrong[0].value(now))
    assert abs((datetime.fromisoformat(fields["sent"]) - now).total_seconds()) >= 3600
    broken = [record for record in records if record.broken]
    assert broken
    for record in broken:
        with pytest.raises(json.JSONDecodeError):
            json.loads(record.value(now))


def test_the_doctor_passes_a_ready_machine(millstream: Command) -> None:
    findings = {row["check"]: row for row in millstream.ok("doctor", "-o", "json").json}
    assert {row["state"] for row in findings.values()} <= {"ok", "warn"}
    for check in ("python", "java", "jars of spark", "jars of broker", "pyspark", "cache", "home"):
        assert findings[check]["state"] == "ok", findings[check]
    assert "answers" in findings["kafka"]["found"]


def test_the_doctor_says_what_to_do_if_something_is_missing(
    offline: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_JAVA", str(tmp_path / "no-java"))
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", "another")
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 10**6, 10**6))
    said = offline("doctor", "--kafka", "127.0.0.1:1")
    lines = {line.split()[1]: line for line in said.out.splitlines()}
    assert said.code == 1
    assert lines["java"].startswith("fail  java")
    assert "MILLSTREAM_JAVA" in lines["java"]
    assert "correct it, or unset it" in lines["java"]
    assert lines["jars"].startswith("warn")
    assert "downloaded at first use" in lines["jars"]
    assert lines["SPARK_HOME"].startswith("warn")
    assert lines["cache"].startswith("fail")
    assert "free some space or set MILLSTREAM_CACHE" in lines["cache"]
    assert lines["kafka"].startswith("fail")
    assert "checks failed" in said.err


def test_the_doctor_downloads_and_starts_nothing(
    offline: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    findings = {row["check"]: row for row in offline.ok("doctor", "-o", "json").json}
    assert findings["jars of broker"]["state"] == "warn"
    assert findings["broker"]["do"].startswith("start it with `millstream up`")
    assert list((tmp_path / "cache").rglob("*.jar")) == []
