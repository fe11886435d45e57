"""`millstream.testing.postgres()`: a real server that leaves no files or processes."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from millstream.errors import SetupFailed, Unavailable
from millstream.kafka.local.broker_folder import free_port
from millstream.testing import local_postgres, postgres, postgres_process
from millstream.testing.postgres_process import Identity, of_the_wheel, programs

if TYPE_CHECKING:
    from millstream.testing.local_postgres import ThrowAwayPostgres

PATIENCE = 60.0


def asked(url: str, question: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(question.encode()).fetchone()
    assert found is not None
    return found[0]


def wait_until_gone(pid: int, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while psutil.pid_exists(pid) or folder.exists():
        assert time.monotonic() < deadline, f"{pid} or {folder} is still there"
        time.sleep(0.05)


def folder_of(server: ThrowAwayPostgres) -> Path:
    return Path(asked(server.url, "show data_directory")).parent


def test_a_server_starts_answers_survives_a_crash_and_is_removed() -> None:
    began = time.perf_counter()
    with postgres(settings={"wal_level": "logical"}) as server:
        print(f"up in {time.perf_counter() - began:.2f} s")
        folder, pid = folder_of(server), server.pid
        assert pid is not None
        assert asked(server.url, "show wal_level") == "logical"
        with psycopg.connect(server.url) as connection:
            connection.execute("create table t as select 7 as n")
        server.kill()
        assert not psutil.pid_exists(pid)
        server.start()
        assert asked(server.url, "select n from t") == 7
        server.stop()
        server.start()
        assert asked(server.url, "select n from t") == 7
        last = server.pid
        assert last is not None
    wait_until_gone(last, folder)


def test_the_programs_of_the_wheel_are_used_if_none_are_installed() -> None:
    wheel = of_the_wheel()
    assert wheel is not None
    with postgres(programs=wheel) as server:
        assert asked(server.url, "select 1") == 1


def test_another_port_is_used_if_the_chosen_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr(local_postgres, "free_port", lambda: next(ports, None) or free_port())
        with postgres() as server:
            assert asked(server.url, "select 1") == 1


def test_a_server_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(Unavailable, match="no_such_setting"),
        postgres(settings={"no_such_setting": 1}),
    ):
        pass


def test_the_server_requires_the_password_and_creates_no_socket_file(
    postgres_server: ThrowAwayPostgres,
) -> None:
    head, _, tail = postgres_server.url.partition("@")
    wrong = f"{head.rpartition(':')[0]}:wrong@{tail}"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    assert asked(postgres_server.url, "show unix_socket_directories") == ""
    assert head.rpartition(":")[2] not in repr(postgres_server)


def test_the_server_runs_as_an_existing_user_other_than_root(
    postgres_server: ThrowAwayPostgres,
) -> None:
    assert postgres_server.pid is not None
    process = psutil.Process(postgres_server.pid)
    uid = process.uids().real
    assert uid != 0
    assert pwd.getpwuid(uid).pw_name
    assert os.geteuid() in (0, uid)
    assert 0 not in (process.gids().real, process.uids().effective)


def test_programs_that_the_user_cannot_access_are_copied_into_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wheel = of_the_wheel()
    assert wheel is not None
    reaches = Identity.reaches
    monkeypatch.setattr(
        Identity, "reaches",
        lambda self, path: wheel not in path.parents and reaches(self, path),
    )  # fmt: skip
    with postgres(programs=wheel) as server:
        assert asked(server.url, "select 1") == 1
        assert server.pid is not None
        assert folder_of(server) in Path(psutil.Process(server.pid).exe()).parents


def test_a_folder_that_the_user_cannot_enter_is_detected(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    stranger = Identity(closed.stat().st_uid + 4711, closed.stat().st_gid + 4711)
    assert not stranger.reaches(closed / "data")
    assert Identity().reaches(closed / "data")


def test_without_programs_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres_process, "_DEBIAN", tmp_path / "none")
    monkeypatch.setattr(postgres_process, "_WHEEL", "no_such_wheel")
    with pytest.raises(SetupFailed, match="needs the programs initdb and postgres; got none"):
        programs()


def test_a_server_ends_with_its_owner_even_if_the_owner_is_killed() -> None:
    program = (
        "import sys, time\n"
        "from millstream.testing import postgres\n"
        "with postgres() as server:\n"
        "    print(server.pid, server.url, flush=True)\n"
        "    time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, url = owner.stdout.readline().split()
    folder = Path(asked(url, "show data_directory")).parent
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()

    wait_until_gone(int(pid), folder)
