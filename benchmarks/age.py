"""A job at rest rate for an hour: files and bytes of its checkpoint, memory and cores, as a plot.

    python -m benchmarks.age --minutes 60 --out /path/of/a/folder [--engine driver]

A topic gets 50 records a second; a job with two stateful steps runs over it in its own process,
with the defaults. Every ten seconds the checkpoint and the job's process tree are looked at. The
result is `age.csv` and `age.svg`; the exit code is 1 if the checkpoint ever had more than 2,000
files, or more bytes than three times the live state and 50 MB.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from millstream.engine.inspection.inspect import open_checkpoint, states
from millstream.errors import MillstreamError
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.testing import broker

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE, KEYS = 50, 1_000
MOST_FILES, LIVE_TIMES, MORE_BYTES = 2_000, 3, 50 * 10**6
_EVERY = 10.0
_JOB = """
import sys
import millstream as ms
from millstream.engine.job import Job

address, folder, engine = sys.argv[1:]
rows = ms.read(ms.Topic("age", schema="key long, value double, ts timestamp"), time="ts",
               watermark="2 seconds")
panes = rows.by("key").window(ms.tumbling("10 seconds")).agg(n=ms.count(), total=ms.sum("value"))
latest = rows.by("key").agg(n=ms.count(), last=ms.last("value"))
pipeline = ms.Pipeline("age", panes.to(ms.Topic("age.panes")),
                       latest.to(ms.Sqlite(folder + "/latest.db", "latest", key="key")),
                       engine=engine)
Job(pipeline, kafka=address, checkpoint=folder + "/checkpoint").run()
"""


class Sample(NamedTuple):
    """What a job takes at one moment; `cores` since the last sample."""

    seconds: float
    batches: int
    files: int
    bytes: int
    live: int
    memory: int
    cores: float

    @property
    def bounded(self) -> bool:
        """Whether the checkpoint is within its limits."""
        return self.files <= MOST_FILES and self.bytes <= LIVE_TIMES * self.live + MORE_BYTES


class Sampler:
    """Looks at a checkpoint and at the processes of its job."""

    def __init__(self, checkpoint: Path, job: int) -> None:
        self._checkpoint, self._job = checkpoint, psutil.Process(job)
        self._began = self._last = time.monotonic()
        self._spent = 0.0

    def sample(self) -> Sample:
        """Take a sample."""
        memory, spent = 0, 0.0
        for process in [self._job, *self._job.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                spent += times.user + times.system
                memory += process.memory_info().rss
        now = time.monotonic()
        cores = (spent - self._spent) / max(now - self._last, 1e-9)
        self._spent, self._last = spent, now
        files, size = taken(self._checkpoint)
        batches, live = _state(self._checkpoint)
        return Sample(round(now - self._began, 1), batches, files, size, live, memory,
                      round(max(0.0, cores), 3))  # fmt: skip


def taken(folder: Path) -> tuple[int, int]:
    """The files below a folder, and their bytes."""
    files = size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(where, name).stat().st_size
                files += 1
    return files, size


def _state(checkpoint: Path) -> tuple[int, int]:
    """The newest batch and the bytes of its state; zero before there is one."""
    try:
        found = states(open_checkpoint(checkpoint))
    except MillstreamError:
        return 0, 0
    return found.batch, sum(step["bytes"] for step in found.steps)


def feed(address: str, over: threading.Event) -> None:
    """Send records at an even rate until it is over."""
    sent, began = 0, time.monotonic()
    with Producer(address) as producer:
        while not over.wait(0.02):
            while sent < (time.monotonic() - began) * RATE:
                at = datetime.now(UTC).isoformat()
                row = {"key": sent * 7919 % KEYS, "value": sent / 10, "ts": at}
                producer.send("age", json.dumps(row).encode())
                sent += 1


def plot(samples: Sequence[Sample]) -> str:
    """Files, bytes, memory and cores over time, one panel each, as SVG."""
    panels = {
        "files of the checkpoint": [float(one.files) for one in samples],
        "MB of the checkpoint": [one.bytes / 1e6 for one in samples],
        "MB of memory, all processes": [one.memory / 1e6 for one in samples],
        "cores": [one.cores for one in samples],
    }
    drawn = [_panel(name, samples, line, 150 * n) for n, (name, line) in enumerate(panels.items())]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {150 * len(panels)}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#6b7683">'
        f"<title>A job at {RATE} records a second</title>{''.join(drawn)}</svg>\n"
    )


def _panel(name: str, samples: Sequence[Sample], line: Sequence[float], top: int) -> str:
    last, most = max(samples[-1].seconds, 1.0), max(*line, 1e-9)
    points = " ".join(
        f"{20 + 600 * one.seconds / last:.1f},{top + 130 - 95 * value / most:.1f}"
        for one, value in zip(samples, line, strict=True)
    )
    return (
        f'<text x="20" y="{top + 20}">{name}: at most {most:,.4g}, at the end {line[-1]:,.4g}, '
        f"after {last / 60:.0f} minutes</text>"
        f'<path d="M20 {top + 130}h600" stroke="#8a97a6" stroke-opacity="0.5"/>'
        f'<polyline points="{points}" fill="none" stroke="#1f8a66" stroke-width="2"/>'
    )


def run(minutes: float, out: Path, engine: str) -> bool:
    """Run the job and keep its samples; whether it stayed within the limits."""
    out.mkdir(parents=True, exist_ok=True)
    samples: list[Sample] = []
    with broker() as running, (out / "job.log").open("wb") as log:
        Topics(running.address).create("age", partitions=2)
        over = threading.Event()
        feeder = threading.Thread(target=feed, args=(running.address, over))
        feeder.start()
        job = subprocess.Popen(
            [sys.executable, "-c", _JOB, running.address, str(out), engine],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            sampler, until = Sampler(out / "checkpoint", job.pid), time.monotonic() + 60 * minutes
            while time.monotonic() < until and job.poll() is None:
                time.sleep(_EVERY)
                samples.append(sampler.sample())
                print("  ".join(f"{word} {value:,}" for word, value in
                                samples[-1]._asdict().items()), flush=True)  # fmt: skip
        finally:
            over.set()
            feeder.join()
            _end(job)
    write(samples, out)
    return all(sample.bounded for sample in samples) and len(samples) * _EVERY >= 50 * minutes


def _end(job: subprocess.Popen[bytes]) -> None:
    """End the job and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        for process in [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    job.wait()


def write(samples: Sequence[Sample], out: Path) -> None:
    """Write the samples and their plot."""
    with (out / "age.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(Sample._fields)
        table.writerows(samples)
    (out / "age.svg").write_text(plot(samples))


def main() -> int:
    """Run from the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--engine", choices=("spark", "driver"), default="spark")
    found = options.parse_args()
    return 0 if run(found.minutes, found.out, found.engine) else 1


if __name__ == "__main__":
    sys.exit(main())
