"""The Python worker of a run: the same one for each of its batches."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from millstream.engine.spark.rdd_jobs import OwnWorker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark import RDD
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def process(numbers: Iterable[int]) -> Iterator[int]:
    list(numbers)
    yield os.getpid()


def slow_process(numbers: Iterable[int]) -> Iterator[int]:
    list(numbers)
    time.sleep(0.5)
    yield os.getpid()


def one_task(spark: SparkSession) -> RDD[int]:
    return spark.sparkContext.parallelize([0], 1).mapPartitions(process)


def processes(rdd: RDD[int]) -> set[int]:
    return {pid for _ in range(6) for pid in rdd.collect()}


def test_without_it_tasks_alternate_between_workers(spark: SparkSession) -> None:
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(slow_process).collect()

    assert len(processes(one_task(spark))) >= 2


def test_all_tasks_of_a_run_have_one_worker(spark: SparkSession) -> None:
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(slow_process).collect()
    first, second = OwnWorker(), OwnWorker()
    of_first = processes(first.placed(one_task(spark)))
    of_second = processes(second.placed(one_task(spark)))
    first.close()
    third = OwnWorker()
    of_third = processes(third.placed(one_task(spark)))
    second.close()
    third.close()

    assert len(of_first) == len(of_second) == 1
    assert of_first == of_third != of_second
    assert "MILLSTREAM_WORKER" not in spark.sparkContext.environment
