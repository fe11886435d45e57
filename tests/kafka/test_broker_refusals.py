"""Ports, folders and settings that a local broker refuses before it starts."""

from __future__ import annotations

import json
import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from millstream.errors import Damaged, InvalidInput, MillstreamError, SetupFailed, Unavailable
from millstream.kafka.local import broker as local

if TYPE_CHECKING:
    from pathlib import Path


def test_a_port_in_use_is_named_with_its_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Unavailable) as raised:
            local.start(tmp_path, port=port)
    assert f"needs port {port} of 127.0.0.1; got a port in use by " in str(raised.value)
    assert f"(pid {os.getpid()})" in str(raised.value)
    assert local.status(tmp_path).address is None


def test_a_broker_whose_stored_port_is_in_use_does_not_choose_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        note = json.dumps({"format": 1, "kafka": "4.0.0", "port": port})
        (tmp_path / "broker.json").write_text(note)
        with pytest.raises(Unavailable, match=f"needs port {port} "):
            local.start(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.io.threads": "many"}, r"Invalid value many for configuration num\.io\.threads"),
        ({"log.dirs": "other"}, r"got the setting 'log\.dirs'; omit it"),
        ({"num.partitions": "1\nlog.dirs=x"}, "one line of plain ASCII"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(MillstreamError, match=message):
        local.start(tmp_path / "broker", settings=settings)
    assert not (tmp_path / "broker" / "data").exists()


@pytest.mark.parametrize(
    ("note", "error", "message"),
    [
        ('{"format": 1, "kafka": "99.0.0"}', SetupFailed, r"of format 1 and Kafka 99\.0\.0"),
        ('{"format": 2, "kafka": "4.3.1"}', SetupFailed, r"of format 2 and Kafka 4\.3\.1"),
        ('{"format": 1', Damaged, r"needs a readable .*broker\.json"),
    ],
)
def test_a_folder_of_another_version_is_not_changed(
    note: str, error: type[MillstreamError], message: str, tmp_path: Path
) -> None:
    (tmp_path / "broker.json").write_text(note)
    with pytest.raises(error, match=message):
        local.start(tmp_path)
    assert (tmp_path / "broker.json").read_text() == note
    assert not (tmp_path / "server.properties").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(InvalidInput, match=r"got .* with 'thesis\.tex' in it; use another"):
        local.start(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_whose_first_start_was_interrupted_can_be_used(
    tmp_path: Path,
) -> None:
    for name in ("broker.lock", "server.properties", "broker.json.new"):
        (tmp_path / name).touch()
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(Unavailable, match="a port in use"),
    ):
        local.start(tmp_path, port=other.getsockname()[1])


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "broker"
    with pytest.raises(SetupFailed, match=f"needs to write in {folder}; got Not a directory"):
        local.start(folder)
    assert local.status(folder).running is False


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_an_invalid_port_is_refused(port: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"from 1 to 65535; got {port}"):
        local.start(tmp_path / "broker", port=port)
