"""The job under test, in a separate process: `python -m tests.faults.driver <config.json>`.

It runs a real pipeline against a real broker and writes its events to a file. The test that
started it may hold it at a step of the protocol, freeze it or kill it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from tests.faults import sabotage
from tests.faults.sinks_outputs import frames_of, outputs_of

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from millstream.metrics.facts import Facts

SCHEMA = "id long not null, key long, amount long, ts timestamp"
SIZE = "10 seconds"
DELAY = "5 seconds"


@dataclass(frozen=True)
class Config:
    """One run: its job, its input, its options, and the file for its events.

    `engine` is the driver unless a test is about Spark: the protocol is the same, and a run then
    needs no Java. A lane or faults in tasks mean Spark.
    `budget` is the size of a batch in bytes, `narrow` that of the largest one for the narrow
    lane, `task_faults` how tasks fail, `sabotage` the guards that are switched off. With `tables`,
    a folder and the address of a database, results go to every kind of sink. With `frames`, a
    folder, they go to `Spark` and `ForeachBatch` only.
    """

    kafka: str
    topic: str
    name: str
    checkpoint: str
    events: str
    lane: Literal["narrow", "wide"] | None = None
    engine: Literal["spark", "driver"] = "driver"
    until: Literal["caught_up", "finished"] | None = None
    take_over: bool = False
    budget: int | None = None
    narrow: int | None = None
    task_faults: str | None = None
    sabotage: tuple[str, ...] = field(default=())
    tables: tuple[str, str] | None = None
    frames: str | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        body = json.loads(path.read_text())
        tables = body["tables"]
        return cls(**{**body, "sabotage": tuple(body["sabotage"]),
                      "tables": None if tables is None else (tables[0], tables[1])})  # fmt: skip

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def pipeline_of(config: Config) -> ms.Pipeline:
    """Count and sum by key and window to `<name>.windows`, each id once to `<name>.once`."""
    source = ms.Topic(config.topic, schema=SCHEMA)
    rows = ms.read(source, time="ts", watermark=DELAY, idle=None)
    if config.task_faults is not None:
        rows = rows.transform(with_task_faults(Path(config.events).parent, config.task_faults))
    windows = rows.by("key").window(ms.tumbling(SIZE)).agg(n=ms.count(), total=ms.sum("amount"))
    once = rows.distinct(by="id")
    if config.frames is not None:
        outputs = frames_of(config.frames, windows, once)
        return ms.Pipeline(config.name, *outputs, batch="1 second")
    return ms.Pipeline(
        config.name,
        windows.to(ms.Topic(f"{config.name}.windows")),
        once.to(ms.Topic(f"{config.name}.once")),
        *([] if config.tables is None else outputs_of(*config.tables, windows, once)),
        batch="1 second",
        engine="spark" if config.lane == "wide" or config.task_faults else config.engine,
    )


def with_task_faults(folder: Path, how: str) -> Callable[[DataFrame], DataFrame]:
    """The same rows, but one task fails for each word of `how`.

    The file of that name in the folder exists once it has failed, and the file `again` once a
    task was run a second time.
    """

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            (folder / "again").touch()
        for batch in batches:
            yield batch
            for word in how.split():
                if batch.num_rows and sabotage.first(folder / word):
                    sabotage.fail_task(word)

    return lambda frame: frame.mapInArrow(through, frame.schema)


def small_batches(budget: int) -> None:
    """Give batches about this many bytes, whatever the speed."""
    from millstream.engine import engine
    from millstream.engine.lanes import planner

    planner._LEAST = planner._MOST = budget
    vars(engine)["Sizing"] = partial(planner.Sizing, budget=budget)


def narrow_batches(most: int) -> None:
    """Run batches with more than this many bytes in the wide lane."""
    from millstream.engine.lanes import planner

    planner.NARROW_BYTES = most


def read_ahead_all() -> None:
    """Let every row be worth reading ahead."""
    from millstream.engine.lanes import prefetch

    prefetch.LEAST = 1


class EventLog:
    """The events of a run, a line of JSON each, which can be read after a kill."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **event: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def batch(self, facts: Facts, lag: dict[str, int]) -> None:
        self.write(
            batch=facts.batch,
            lane=facts.lane,
            where=facts.where,
            rows=facts.rows,
            lag=sum(lag.values()),
        )


def main(path: str) -> int:
    config = Config.read(Path(path))
    events = EventLog(Path(config.events))
    events.write(pid=os.getpid(), started=True)
    for guard in config.sabotage:
        sabotage.GUARDS[guard]()
    if config.budget is not None:
        small_batches(config.budget)
    if config.narrow is not None:
        narrow_batches(config.narrow)
    read_ahead_all()
    try:
        pipeline_of(config).run(
            until=config.until,
            kafka=config.kafka,
            checkpoint=config.checkpoint,
            lane=config.lane,
            take_over=config.take_over,
            on_batch=events.batch,
        )
    except BaseException as error:
        events.write(error=type(error).__name__, message=str(error))
        raise
    events.write(ended=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
