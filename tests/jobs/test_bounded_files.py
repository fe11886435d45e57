"""No file of the stack grows without bound."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.jobs.stacks import until
from tests.jobs.test_supervisor import sleeper

from millstream.jobs import logs
from millstream.jobs.folders import stack_folder
from millstream.jobs.logs import Log
from millstream.jobs.registry import JobRegistry
from millstream.jobs.stack import page_address
from millstream.jobs.supervisor import Supervisor
from millstream.kafka.local.processes import ProcessLock

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.jobs.stacks import Stack

MEGABYTE = 1_000_000
MALFORMED = [
    b"\x00\x01\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nBad header\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
]
CHATTY = """import sys, time

for number in range({lines}):
    print("x" * 999)
    if number % 1000 == 0:
        time.sleep({pause})
print("the last line", flush=True)
time.sleep(3600)
"""


def size_of(*files: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in files if file.exists())


def ended(output: Path) -> bool:
    """Whether the last line has been printed, to this file or the rotated one."""
    files = [one for one in (output, output.with_name(output.name + ".1")) if one.exists()]
    return any(b"the last line" in one.read_bytes()[-1_000:] for one in files)


def test_the_output_of_a_process_can_be_truncated_while_it_writes(tmp_path: Path) -> None:
    life, output = ProcessLock(tmp_path / "p.lock"), tmp_path / "p.out"
    descriptor = life.take()
    assert descriptor is not None
    life.launch(
        [sys.executable, "-u", "-c", CHATTY.format(lines=40_000, pause=0.02)],
        descriptor=descriptor, folder=tmp_path, output=output, environment=dict(os.environ),
    )  # fmt: skip
    process = life.holder(wait=10)
    assert process is not None
    try:

        def has_ended() -> bool:
            logs.rotate_open_file(output)
            assert size_of(output, tmp_path / "p.out.1") < 3 * logs.LARGEST
            return ended(output)

        until(has_ended, "the last line")
        assert (tmp_path / "p.out.1").exists()
    finally:
        process.kill()
        assert life.ended(10)


def test_rotating_a_huge_file_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.out"
    with path.open("wb") as file:
        file.truncate(2_000 * MEGABYTE)
        file.seek(0, os.SEEK_END)
        file.write(b"the end")
    tracemalloc.start()
    logs.rotate_open_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MEGABYTE
    assert path.stat().st_size == 0
    assert (tmp_path / "huge.out.1").read_bytes()[-8:] == b"\0the end"


def test_a_log_line_is_bounded_and_has_the_original_length(tmp_path: Path) -> None:
    log = Log(tmp_path / "job.log")
    log("ended", error="x" * 10 * MEGABYTE, kinds={"a": "y" * 10 * MEGABYTE})
    log.close()
    [line] = (tmp_path / "job.log").read_text().splitlines()
    assert len(line) < 100_000
    entry = json.loads(line)
    assert entry["error"].endswith("… (10000000 characters)")
    assert "10000" in entry["kinds"]


def test_the_supervisor_bounds_the_output_of_the_parts_of_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    folder = stack_folder(tmp_path)
    folder.make()
    printed = [folder.path / "console.out", folder.path / "supervisor.out",
               tmp_path / "broker" / "broker.out"]  # fmt: skip
    for file in printed:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * (logs.LARGEST + 1))
    log = Log(folder.log("supervisor"))
    supervisor = Supervisor(folder, lambda job: None, log)
    supervisor.turn()
    supervisor.close()
    log.close()
    assert [file.stat().st_size for file in printed] == [0, 0, 0]


def test_the_output_of_libraries_during_a_run_is_bounded(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from millstream.cli.terminal.pipelines import libraries_print_to\n"
        "with libraries_print_to(Path(sys.argv[1])):\n"
        "    for _ in range(40):\n"
        "        os.write(2, b'x' * 1_000_000)\n"
        "        time.sleep(0.1)\n"
    )
    path = tmp_path / "libraries.log"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=120)
        assert size_of(*tmp_path.iterdir()) < 5 * logs.LARGEST


def test_only_the_newest_crash_reports_in_a_jobs_folder_are_kept(tmp_path: Path) -> None:
    for number in range(10):
        for name in (f"hs_err_pid{number}.log", f"replay_pid{number}.log"):
            (tmp_path / name).write_text("crash")
            os.utime(tmp_path / name, (number, number))
    (tmp_path / "facts.db").write_text("kept")
    life = ProcessLock(tmp_path / "p.lock")
    descriptor = life.take()
    assert descriptor is not None
    life.launch([sys.executable, "-c", ""], descriptor=descriptor, folder=tmp_path,
                output=tmp_path / "p.out", environment=dict(os.environ))  # fmt: skip
    assert life.ended(20)
    left = sorted(file.name for file in tmp_path.iterdir() if "pid" in file.name)
    assert left == [f"{kind}_pid{n}.log" for kind in ("hs_err", "replay") for n in (7, 8, 9)]
    assert (tmp_path / "facts.db").exists()


def test_malformed_requests_and_a_verbose_job_leave_the_stacks_files_small(
    stack: Stack, tmp_path: Path
) -> None:
    stack.up()
    with JobRegistry(stack.folder.registry, read_only=True) as registry:
        port = page_address(registry).port
    sleeper(stack, "chatty", tmp_path, CHATTY.format(lines=60_000, pause=0.05))
    output = stack.folder.job("chatty").output
    began = time.monotonic()
    for sent in MALFORMED:
        for _ in range(2_000):
            with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(sent)
                one.recv(100)
    assert time.monotonic() - began < 120

    def idle_for() -> bool:
        assert size_of(output, output.with_name("output.log.1")) < 5 * logs.LARGEST
        return output.exists() and ended(output)

    until(idle_for, "the last line")
    sizes = {one.name: one.stat().st_size for one in stack.folder.path.iterdir() if one.is_file()}
    assert sizes["console.out"] < 2_000, (stack.folder.path / "console.out").read_text()[-2_000:]
    assert sizes["console.log"] < 2_000
