"""`millstream dev`: a saved change is loaded and runs."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tests.cli.bids import lines, pipeline_file

from millstream.cli.pipeline.dev import FileWatcher

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_a_save_an_addition_and_a_removal_are_seen_once(tmp_path: Path) -> None:
    file = tmp_path / "hot.py"
    file.write_text("x = 1")
    watcher = FileWatcher(file)
    assert not watcher.changed()
    file.write_text("x = 22")
    assert watcher.changed()
    assert not watcher.changed()
    (tmp_path / "beside.py").write_text("")
    assert watcher.changed()
    (tmp_path / "beside.py").unlink()
    assert watcher.changed()
    (tmp_path / "notes.txt").write_text("")
    assert not watcher.changed()


class LiveOutput:
    """The output of a process, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.said = process, ""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as talk:
            for line in talk:
                self.said += line.decode()

    def end(self) -> None:
        """Wait until the process has ended and its output is read."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join(60)

    def until(self, words: str, patience: float = 180) -> None:
        deadline = time.monotonic() + patience
        while words not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)


def test_a_saved_file_is_reloaded_and_an_invalid_one_leaves_the_old_running(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    file = pipeline_file(tmp_path, topic)
    text = (tmp_path / "hot.py").read_text()
    millstream.ok("topics", "create", topic)
    process = millstream.process("dev", file, "--checkpoint", str(tmp_path / "job"),
                                 stdout=subprocess.DEVNULL)  # fmt: skip
    talk = LiveOutput(process)
    try:
        talk.until("running …")
        (tmp_path / "hot.py").write_text(text.replace("price > 0", "prise > 0"))
        talk.until("prise")
        assert "hot.py:8" in talk.said
        millstream.ok("produce", topic, stdin=lines([1, 2, 11]))
        talk.until("batch 1")
        (tmp_path / "hot.py").write_text(text.replace("price > 0", "price > 1"))
        talk.until(f"reloaded {file}")
        millstream.ok("produce", topic, stdin=lines([12, 21]))
        talk.until("batch 2")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, talk.said
    finally:
        talk.end()
    assert "Traceback" not in talk.said
    out = millstream.ok("tail", f"{topic}.out", "--until-end", "--values").out
    assert [line.count('"n":2') for line in out.splitlines()] == [1, 1]


def test_dev_over_files_needs_no_kafka_and_reports_why_a_finished_job_stops(
    offline: Command, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"page": 1}\nno json\n')
    file = tmp_path / "views.py"
    text = (
        "import millstream as ms\n"
        f'views = ms.read(ms.Files({str(tmp_path / "in")!r}, format="json", schema="page long"))\n'
        f'out = ms.Files({str(tmp_path / "out")!r}, format="json")\n'
        'pipeline = ms.Pipeline("views", views.to(out))\n'
    )
    file.write_text(text)
    folder = ["--checkpoint", str(tmp_path / "job")]
    offline.ok("run", str(file), *folder, "--until", "finished")
    file.write_text(text.replace("views.to(out)", 'views.where("page > 1").to(out)'))
    process = offline.process("dev", str(file), *folder, stdout=subprocess.DEVNULL)
    talk = LiveOutput(process)
    try:
        talk.until("another pipeline: where page > 1 (new)")
        talk.until("save the file to try again")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        talk.end()
