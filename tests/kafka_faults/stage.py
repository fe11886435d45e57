"""The setup of fault tests: a producer writes, a job copies, and a check compares."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.driver import SCHEMA
from tests.kafka_faults.writer import PARTITIONS

import millstream as ms
from millstream.engine.job import Job
from millstream.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.sources.kafka.wire_fetch import WireFetcher

HERE = Path(__file__).parent
PATIENCE = 150.0


def give_up(_fetcher: WireFetcher, _began: float, got: str) -> None:
    """Replaces `WireFetcher._again`: no retries."""
    raise Unavailable("this needs its connection", got=got)


@dataclass
class Stage:
    """One topic, one job that copies each id once, and what the job reported."""

    kafka: str
    topic: str
    folder: Path
    writes_to: str | None = None
    rows: list[int] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def name(self) -> str:
        return f"job-{self.topic[-8:]}"

    @property
    def output(self) -> str:
        return f"{self.name}.out"

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def make_topic(self, copies: int = 3) -> None:
        """Create the input topic."""
        admin = AdminClient({"bootstrap.servers": self.writes_to or self.kafka, "log_level": 0})
        [made] = admin.create_topics([NewTopic(self.topic, PARTITIONS, copies)]).values()
        made.result(60)

    def pipeline(self) -> ms.Pipeline:
        rows = ms.read(ms.Topic(self.topic, schema=SCHEMA), time="ts", watermark="5 seconds",
                       idle=None)  # fmt: skip
        out = rows.distinct(by="id", within="1 hour").to(ms.Topic(self.output))
        return ms.Pipeline(self.name, out, batch="500 ms")

    def job(self, **options: Any) -> Job:
        return Job(self.pipeline(), kafka=self.kafka, checkpoint=self.folder / "checkpoint",
                   lane="narrow", **options)  # fmt: skip

    @contextmanager
    def writing(self, pause: float = 0.004) -> Iterator[None]:
        """A producer writes rows during the block; after it, the notes are complete."""
        arguments = {"kafka": self.writes_to or self.kafka, "topic": self.topic,
                 "notes": str(self.notes), "pause": pause}  # fmt: skip
        with subprocess.Popen(
            [sys.executable, str(HERE / "writer.py"), json.dumps(arguments)], stdin=subprocess.PIPE
        ) as writer:
            try:
                yield
            finally:
                assert writer.stdin is not None
                writer.stdin.close()
                assert writer.wait(200) == 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """The job runs during the block; its error is stored in `error`."""
        job = self.job(on_batch=lambda facts, lag: self.rows.append(facts.rows),
                       on_phase=self.phases.append)  # fmt: skip

        def run() -> None:
            try:
                job.run()
            except BaseException as error:
                self.error = error

        thread = threading.Thread(target=run, name=self.topic)
        thread.start()
        try:
            self.until(lambda: bool(self.rows), "a first batch")
            yield
        finally:
            job.stop()
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true; fail if the job ends before."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            if self.error is not None:
                raise AssertionError(f"the job ended instead of: {what}") from self.error
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:.0f} s"
            time.sleep(0.02)

    def more(self, rows: int = 200) -> None:
        """Wait until the job has processed `rows` more rows."""
        seen = sum(self.rows)
        self.until(lambda: sum(self.rows) >= seen + rows, f"{rows} more rows")

    def verdict(self) -> dict[str, Any]:
        """Process all acknowledged rows, then check the output."""
        self.job(until="caught_up").run()
        arguments = {"kafka": self.kafka, "output": self.output, "notes": str(self.notes)}
        checked = subprocess.run(
            [sys.executable, str(HERE / "acknowledged.py"), json.dumps(arguments)],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stderr
        found: dict[str, Any] = json.loads(checked.stdout)
        return found

    def assert_right(self) -> None:
        """No acknowledged row is lost, and none is duplicated."""
        verdict = self.verdict()
        assert not verdict["lost"], verdict
        assert not verdict["duplicated"], verdict
        assert not verdict["phantom"], verdict
        assert verdict["acknowledged"] > 100, verdict
        print(verdict)
