"""Ivy: reports progress, never hangs, and uses the proxies of the environment."""

from __future__ import annotations

import base64
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from millstream.errors import SetupFailed
from millstream.toolchain import ivy
from millstream.toolchain.jars import WANTED, jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def silent_java(home: Path) -> Path:
    """A Java that prints its version, and otherwise nothing for a minute."""
    executable = home / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-version*) echo \'version "17.0.1"\' >&2 ;; *) exec sleep 60 ;; esac\n'
    )
    executable.chmod(0o700)
    return home


def test_ctrl_c_stops_the_fetch_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_JAVA", str(silent_java(tmp_path)))
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    with subprocess.Popen(
        [sys.executable, "-m", "millstream.toolchain.prepare"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("fetching jars: spark and broker")
        while not psutil.Process(process.pid).children():
            time.sleep(0.02)
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted; run it again"
    assert "Traceback" not in said
    assert not any(child.is_running() for child in children)
    assert list(tmp_path.rglob("fetching-*")) == []


def test_a_quiet_ivy_is_reported_and_a_stalled_one_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivy, "QUIET", 0.5)
    monkeypatch.setattr(ivy, "STALLED", 2.0)
    monkeypatch.setenv("MILLSTREAM_JAVA", str(silent_java(tmp_path)))
    said: list[str] = []
    started = time.monotonic()

    with pytest.raises(SetupFailed, match="got no answer for 2 seconds from the registry"):
        ivy.fetch(WANTED, ["spark"], tmp_path, said.append)

    assert time.monotonic() - started < 20
    assert said
    assert said[0].startswith("fetching jars: reading what the jars need, ")


def test_a_missing_settings_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("MILLSTREAM_IVY_SETTINGS", "mirror.xml")

    with pytest.raises(SetupFailed, match=r"needs to name an ivysettings\.xml; got 'mirror\.xml'"):
        jars("spark")


class Proxy:
    """A proxy that requires a user and a password, and refuses every connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, connection.makefile("rb") as lines:
                head = "|".join(iter(lambda: lines.readline().decode().strip("\r\n"), ""))
                if not head:
                    return
                self.asked.append(head)
                refusal = (
                    b"502 Bad Gateway"
                    if "proxy-authorization: basic" in head.lower()
                    else b'407 Asked\r\nProxy-Authenticate: Basic realm="office"'
                )
                connection.sendall(
                    b"HTTP/1.1 " + refusal + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listening.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    running = Proxy()
    yield running
    running.close()


def test_the_proxy_of_the_environment_is_used_with_its_user_and_password(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", f"http://ann:a%20%22secret%5C@127.0.0.1:{proxy.port}")

    with pytest.raises(SetupFailed) as failed:
        jars("spark")

    assert proxy.asked
    assert all(asked.startswith("CONNECT ") for asked in proxy.asked)
    answer = base64.b64encode(b'ann:a "secret\\').decode()
    assert any(asked.endswith(f": Basic {answer}") for asked in proxy.asked)
    assert f"through the proxy 127.0.0.1:{proxy.port}" in str(failed.value)
    assert "secret" not in str(failed.value)


def test_a_proxy_that_requires_a_missing_password_is_named(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")

    with pytest.raises(SetupFailed) as failed:
        jars("spark")

    assert f"through the proxy 127.0.0.1:{proxy.port}" in str(failed.value)
    assert str(failed.value).endswith("or check the name and password in HTTPS_PROXY")


def test_hosts_in_no_proxy_are_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost, .example.org")

    options = list(ivy._network_options(tmp_path))

    assert "-Dhttps.proxyHost=proxy.example" in options
    assert "-Dhttps.proxyPort=3128" in options
    assert "-Dhttp.nonProxyHosts=localhost|*.example.org" in options
