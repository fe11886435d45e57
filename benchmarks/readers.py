"""The cost of the page's readers: CPU of a pipeline alone, as a job, and with 100 readers.

The same windows over the same paced feed run three times: by `millstream run`, alone; as a
supervised job, which writes a run log; and as a job whose page 100 readers watch (the jobs, this
job, its results, its topic followed) while its metrics are scraped every five seconds. Only the
job's own process tree is measured, in CPU-seconds for a thousand records, after a warm-up. Readers
run in a separate process: `python -m benchmarks.readers URL TOKEN JOB TOPIC COUNT`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarks import oracle
from benchmarks.measure import tree_cpu
from benchmarks.paced import fed
from benchmarks.report import keep, spread, verdict
from millstream.jobs.folders import stack_folder
from millstream.kafka.admin.topics import Topics
from millstream.testing import broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.report import Round

RATE = int(os.environ.get("RATE", "2000"))
FEED_SECONDS = int(os.environ.get("FEED_SECONDS", "60"))
WARM_SECONDS = int(os.environ.get("WARM_SECONDS", "20"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
READERS = int(os.environ.get("READERS", "100"))
KEYS, PATIENCE, SCRAPE = 10, 120.0, 5.0
ALONE, WATCHED = "engine alone", f"job, {READERS} readers"
FILE = """import millstream as ms

bids = ms.read(
    ms.Topic({topic!r}, schema="auction long, price double, ts timestamp"), time="ts"
)
hot = bids.by("auction").window(ms.tumbling("1 second")).agg(n=ms.count(), total=ms.sum("price"))
pipeline = ms.Pipeline(
    {job!r},
    hot.to(ms.Topic({out!r})),
    hot.to(ms.Chart("bids a second", y="n", by="auction")),
    hot.to(ms.LiveTable("auctions", key="auction")),
)
"""


def readers(engines: tuple[str, ...]) -> bool:
    """CPU per thousand records: alone, as a job, and with readers."""
    del engines  # this row compares Millstream with itself
    cells: dict[str, list[Round]] = {ALONE: [], "job, no readers": [], WATCHED: []}
    with broker() as running:
        for number in range(ROUNDS):
            turn = number % len(cells)
            for name in [*cells][turn:] + [*cells][:turn]:
                figures = _cell(name, running.address)
                cells[name].append({**figures, "load": os.getloadavg()[0]})
                print(f"  readers {name}, round {number + 1}: {figures['cpu_ms']:.2f} ms of CPU "
                      "for a thousand records", flush=True)  # fmt: skip
    print(f"\nreaders: {RATE:,}/s for {FEED_SECONDS} s, the first {WARM_SECONDS} s left out; "
          "CPU of the job for a thousand records")  # fmt: skip
    base = statistics.median(one["cpu_ms"] for one in cells[ALONE])
    for name, rounds in cells.items():
        took = [one["cpu_ms"] for one in rounds]
        more = statistics.median(took) / base - 1
        print(f"  {name:20} {spread(took, '.2f')} ms  {more:+.1%}  {verdict(rounds)}")
    settings = {"RATE": RATE, "FEED_SECONDS": FEED_SECONDS, "WARM_SECONDS": WARM_SECONDS,
                "ROUNDS": ROUNDS, "READERS": READERS}  # fmt: skip
    return keep("readers", settings, cells)


def _cell(name: str, address: str) -> Round:
    job = f"job-{uuid.uuid4().hex[:8]}"
    topic, out = f"{job}-in", f"{job}-out"
    for made in (topic, out):
        Topics(address).create(made)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "watched.py"
        file.write_text(FILE.format(topic=topic, out=out, job=job))
        start = _running_alone if name == ALONE else _running_as_job
        with start(Path(folder), file, job, address) as pid:
            with _watching(Path(folder), job, out, READERS if name == WATCHED else 0):
                figures = _measured(pid, address, topic, out)
            expected = oracle.Windows(address, topic, window_ms=1000, delay_ms=0)
            _await(lambda: Topics(address).offsets(out)[0] >= expected.due, "all windows")
    return {**figures, "check": expected.check(out)}


def _measured(pid: int, address: str, topic: str, out: str) -> Round:
    """Feed, and give what the process tree spent after the warm-up, which it has dealt with."""
    begin = float(int(time.time()) + 1)
    fed(address, topic, 1, begin, rate=RATE, keys=KEYS, seconds=WARM_SECONDS)
    windows = (WARM_SECONDS - 1) * KEYS
    _await(lambda: Topics(address).offsets(out)[0] >= windows, "the windows of the warm-up")
    spent, began = tree_cpu(pid), time.time()
    fed(address, topic, 1, float(int(time.time()) + 1), rate=RATE, keys=KEYS,
        seconds=FEED_SECONDS - WARM_SECONDS)  # fmt: skip
    cpu, wall = tree_cpu(pid) - spent, time.time() - began
    records = RATE * (FEED_SECONDS - WARM_SECONDS)
    return {"cpu": cpu, "wall": wall, "cpu_ms": cpu * 1000 / (records / 1000)}


@contextmanager
def _running_alone(folder: Path, file: Path, job: str, address: str) -> Iterator[int]:
    command = [sys.executable, "-m", "millstream.cli.main", "run", str(file), "--kafka", address,
               "--checkpoint", str(folder / "job")]  # fmt: skip
    with (folder / "run.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(folder))
        try:
            _await((folder / "job" / "job").exists, "the run")
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


@contextmanager
def _running_as_job(folder: Path, file: Path, job: str, address: str) -> Iterator[int]:
    def millstream(*words: str) -> None:
        command = [sys.executable, "-m", "millstream.cli.main", *words]
        subprocess.run(command, check=True, capture_output=True, env=_environment(folder))

    millstream("up", "--kafka", address)
    try:
        millstream("jobs", "submit", str(file), "--checkpoint", str(folder / "job"))
        holder = stack_folder(folder / "home").job(job).lock.holder()
        assert holder is not None
        yield holder.pid
    finally:
        millstream("down")


@contextmanager
def _watching(folder: Path, job: str, topic: str, count: int) -> Iterator[None]:
    """Readers of the stack's page, in a separate process."""
    if not count:
        yield
        return
    from millstream.jobs.registry import JobRegistry
    from millstream.jobs.stack import page_address

    stack = stack_folder(folder / "home")
    with JobRegistry(stack.registry, read_only=True) as registry:
        url = page_address(registry).url
    command = [sys.executable, "-m", "benchmarks.readers", url, stack.token(), job, topic,
               str(count)]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        answer = process.stdout.readline()
        if json.loads(answer or "{}") != {"reading": count}:
            raise SystemExit(f"{count} readers need to be let in; got {answer!r}")
        yield
        if process.poll() is not None:
            raise SystemExit("the readers ended before the feed did")
    finally:
        process.kill()
        process.wait()


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "MILLSTREAM_HOME": str(folder / "home")}


def _await(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.2)


async def _read_all(url: str, token: str, job: str, topic: str, count: int) -> None:
    """Readers, each with its own connection, until this process is killed."""
    paths = ("/api/stream", f"/api/jobs/{job}/stream", f"/api/topics/{topic}/follow")
    begun = asyncio.Semaphore(0)
    tasks = [
        asyncio.create_task(_read(url, token, paths[number % len(paths)], begun))
        for number in range(count)
    ]
    tasks.append(asyncio.create_task(_scrape(url)))
    for _ in range(count):
        waiting = asyncio.create_task(begun.acquire())
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise SystemExit(f"a reader was sent away: {[t for t in tasks if t.done()]}")
    print(json.dumps({"reading": count}), flush=True)
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _read(url: str, token: str, path: str, begun: asyncio.Semaphore) -> None:
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    words = f"GET {path} HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(words.encode())
    if b" 200 " not in await reader.readline():
        return
    while line := await reader.readline():
        if line.startswith(b"data: "):
            begun.release()
            break
    while await reader.read(1 << 16):
        pass


async def _scrape(url: str) -> None:
    at = urlsplit(url)
    while True:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        words = f"GET /metrics HTTP/1.1\r\nHost: {at.netloc}\r\nConnection: close\r\n\r\n"
        writer.write(words.encode())
        while await reader.read(1 << 16):
            pass
        writer.close()
        await asyncio.sleep(SCRAPE)


if __name__ == "__main__":
    _url, _token, _job, _topic, _count = sys.argv[1:]
    asyncio.run(_read_all(_url, _token, _job, _topic, int(_count)))
