"""Spark jobs whose tasks are Python only: on kept RDDs of numbers, without planning a query.

A DataFrame job costs twice as much as an RDD job (decision record 36). Tasks return their errors
as values: Spark would run a task that raised again, and wrap the error in a trace of the JVM.
"""

from __future__ import annotations

import gc
import pickle
import threading
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.engine.spark.executors import check_version, lacking, version
from millstream.engine.spark.failures import is_spark_error, user_code
from millstream.errors import InvalidSpec, MillstreamError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import RDD
    from pyspark.sql import SparkSession

T = TypeVar("T")
_checked: set[str] = set()  # applications whose workers have what they need
_MODULES = ("pyarrow.compute", "millstream.engine.lanes.narrow_tasks",
            "millstream.engine.kernels.kernels")  # fmt: skip
DESCRIPTION, CALL_SITE = "spark.job.description", "callSite.short"
_IMPORTING_TASKS = 2
_TRIES = 3
_WORKER_LOST = ("Python worker exited unexpectedly", "Python worker failed to connect back",
                "ExecutorLostFailure", "Connection reset", "Broken pipe")  # fmt: skip
_begun: list[None] = []
_WORKER = "MILLSTREAM_WORKER"
_choosing, _taken = threading.Lock(), set[int]()


def begin_task() -> None:
    """Called first in every task.

    Spark's daemon collects garbage after each task: 40 ms for the modules alone. Once they are
    imported, they are excluded from collections.
    """
    if len(_begun) < _IMPORTING_TASKS:
        _begun.append(None)
        gc.freeze()


class OwnWorker:
    """A Python worker for the tasks of one run, which run one after another.

    Spark gives a task the worker that has been idle longest: among shared workers a run would
    alternate, and find what one of them keeps only every other time. Workers are shared by
    environment, so this one has a variable of its own. The next run takes it over.
    """

    def __init__(self) -> None:
        with _choosing:
            self._number = next(number for number in count() if number not in _taken)
            _taken.add(self._number)

    def placed(self, rdd: RDD[T]) -> RDD[T]:
        """The RDD, whose function will run in this worker."""
        environment = rdd.context.environment
        with _choosing:
            environment[_WORKER] = str(self._number)
            rdd.id()  # PySpark wraps the function here, with the environment
            del environment[_WORKER]
        return rdd

    def close(self) -> None:
        """Leave the worker to another run."""
        with _choosing:
            _taken.discard(self._number)


class TaskError(MillstreamError):
    """An error of a task that cannot be pickled; the message has its traceback."""


@dataclass(frozen=True)
class Raised:
    """What a task raised."""

    error: Exception


@dataclass(frozen=True)
class Numbered:
    """A function for numbered tasks, as Spark calls it; `step` is named in errors of user code."""

    step: str
    function: Callable[[Iterable[int]], Any]

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        begin_task()
        mine = list(numbers)  # a worker is reused only if its input was read to the end
        try:
            with user_code(self.step):
                reply = self.function(mine)
        except Exception as error:
            reply = Raised(error)
        yield pickled(reply)


class RddJobs:
    """The RDD jobs of a run: results in the order of the numbers."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._kept: dict[tuple[int, int], RDD[int]] = {}

    def numbers(self, count: int, tasks: int) -> RDD[int]:
        """The numbers below `count`, in so many partitions: the same RDD each time."""
        place = (count, tasks)
        if place not in self._kept:
            self._kept[place] = self._context.parallelize(range(count), tasks)
        return self._kept[place]

    def run(
        self, step: str, jobs: Sequence[tuple[int, int, Callable[[Iterable[int]], T]]]
    ) -> list[T]:
        """Run functions over numbers as one job: each with a count of numbers and of tasks."""
        made = [self.numbers(count, tasks).mapPartitions(Numbered(step, function))
                for count, tasks, function in jobs]  # fmt: skip
        union = made[0] if len(made) == 1 else self._context.union(made)
        return [cast("T", unpickled(reply)) for reply in collected(union)]


def collected(rdd: RDD[T]) -> list[T]:
    """What the tasks of an RDD return; run again if a worker process was lost.

    On a cluster Spark repeats a lost task by itself, in local mode it does not. What an earlier
    try wrote is not used: each file has a name of its own.

    Raises:
        Unavailable: Spark could not run the tasks.
        SetupFailed: a worker lacks what tasks need.
    """
    for left in reversed(range(_TRIES)):
        try:
            return _collected(rdd)
        except Exception as error:
            if not is_spark_error(error):
                raise
            if (lack := lacking(str(error))) is not None:
                raise lack from error
            if left and any(words in str(error) for words in _WORKER_LOST):
                continue
            raise Unavailable(
                "a batch needs Spark to run its tasks",
                got=_cause(str(error)),
                do="see Spark's page and its log; the batch is run again at the next start",
            ) from error
    raise AssertionError("unreachable")


def _collected(rdd: RDD[T]) -> list[T]:
    """As `rdd.collect()`, for a few small values, with a third less work for Java.

    `collect` has Spark analyse the byte code of its own closures for each job, and passes the
    values through a socket that it opens for them.
    """
    found = rdd._jrdd.collectAsync().get()
    return [value for number in range(found.size()) for value in pickle.loads(found.get(number))]  # noqa: S301


def _cause(text: str) -> str:
    """The line of a Spark error that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (causes or lines or ["no reason"])[-1 if causes else 0][:300]


def unpickled(reply: bytes) -> object:
    """What a task returned.

    Raises:
        Exception: what it raised.
    """
    found = pickle.loads(reply)  # noqa: S301
    if isinstance(found, Raised):
        raise found.error
    return found


def pickled(reply: object) -> bytes:
    """A reply of a task; an error keeps its traceback as a note."""
    from pyspark import cloudpickle

    if isinstance(reply, Raised) and not isinstance(reply.error, MillstreamError):
        text = "".join(traceback.format_exception(reply.error))
        reply.error.add_note(f"in a Spark task:\n{text}")
    try:
        return bytes(cloudpickle.dumps(reply))
    except Exception:
        if not isinstance(reply, Raised):
            raise
        text = "".join(traceback.format_exception(reply.error))
        return pickle.dumps(Raised(TaskError(text)))


def describe(spark: SparkSession, text: str | None) -> None:
    """Say in Spark's UI what the next jobs of this thread are for."""
    spark.sparkContext.setLocalProperty(DESCRIPTION, cast("str", text))


@contextmanager
def own_call_site() -> Iterator[None]:
    """Let jobs have the call site of this thread's properties: PySpark would set the line of our
    code that starts them."""
    from pyspark.traceback_utils import SCCallSiteSync

    SCCallSiteSync._spark_stack_depth += 1
    try:
        yield
    finally:
        SCCallSiteSync._spark_stack_depth -= 1


def warmed_up(spark: SparkSession) -> SparkSession:
    """The session, after a worker has imported what batches need: the first batch on Spark is no
    slower than the others.

    Raises:
        SetupFailed: the worker lacks something, or has another version of it.
    """
    from millstream.sources.spark.frames import described

    context, worker = spark.sparkContext, OwnWorker()
    tasks = context.parallelize([0], 1).mapPartitions(_imported)
    context.setLocalProperty(CALL_SITE, "warm up")
    try:
        with described(spark, "warm up"), own_call_site():
            [found] = collected(worker.placed(tasks))
    finally:
        worker.close()
        context.setLocalProperty(CALL_SITE, cast("str", None))
    check_version(found)
    _checked.add(spark.sparkContext.applicationId)
    return spark


def check_workers(spark: SparkSession) -> None:
    """Check a session that somebody else has made: once, that its workers have what they need.

    Raises:
        InvalidSpec: it was stopped.
        SetupFailed: as `warmed_up`.
    """
    if spark.sparkContext._jsc is None:
        raise InvalidSpec("a pipeline needs a Spark session that runs", got="one that was stopped",
                          do="build it again with SparkSession.builder")  # fmt: skip
    if spark.sparkContext.applicationId not in _checked:
        warmed_up(spark)


def _imported(numbers: Iterable[int]) -> Iterator[str]:
    list(numbers)  # a worker is reused only if its input was read to the end
    for module in _MODULES:
        import_module(module)
    begin_task()
    yield version()
