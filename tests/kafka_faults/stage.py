"""A stage for faults: somebody writes, a job reads and writes, and a judge compares."""

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
    """Instead of `WireFetcher._again`: a reader that does not try again."""
    raise Unavailable("this needs its connection", got=got)


@dataclass
class Stage:
    """One topic, one job that copies each id once, and all that was said about them."""

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
        """The input, empty."""
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
        """Rows come in all the time; at the end all that will ever be known of them is noted."""
        asked = {"kafka": self.writes_to or self.kafka, "topic": self.topic,
                 "notes": str(self.notes), "pause": pause}  # fmt: skip
        with subprocess.Popen(
            [sys.executable, str(HERE / "writer.py"), json.dumps(asked)], stdin=subprocess.PIPE
        ) as writer:
            try:
                yield
            finally:
                assert writer.stdin is not None
                writer.stdin.close()
                assert writer.wait(200) == 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """The job runs beside; what it ends with is kept."""
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
        """Wait until something holds; a job that has ended waits for nothing any more."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            if self.error is not None:
                raise AssertionError(f"the job ended instead of: {what}") from self.error
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:.0f} s"
            time.sleep(0.02)

    def more(self, rows: int = 200) -> None:
        """Until so many rows more have gone through."""
        seen = sum(self.rows)
        self.until(lambda: sum(self.rows) >= seen + rows, f"{rows} rows more")

    def verdict(self) -> dict[str, Any]:
        """All that was taken goes through; then the judge looks."""
        self.job(until="caught_up").run()
        asked = {"kafka": self.kafka, "output": self.output, "notes": str(self.notes)}
        said = subprocess.run(
            [sys.executable, str(HERE / "acknowledged.py"), json.dumps(asked)],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        found: dict[str, Any] = json.loads(said.stdout)
        return found

    def assert_right(self) -> None:
        """Nothing that was acknowledged is lost, nothing is there twice."""
        verdict = self.verdict()
        assert not verdict["lost"], verdict
        assert not verdict["doubled"], verdict
        assert not verdict["phantom"], verdict
        assert verdict["taken"] > 100, verdict
        print(verdict)
