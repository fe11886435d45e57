"""Types, checked by Spark before anything runs; an error names the step that causes it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.engine.kernels.kernels import Typed
from millstream.engine.spark.failures import is_spark_error, where_it_was_raised
from millstream.engine.spark.session import Spark
from millstream.errors import InvalidSpec, UserCodeFailed
from millstream.plan.explain.explain import step_text
from millstream.plan.graph import Output, ancestry
from millstream.plan.stages import cut
from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from millstream.api.pipeline import Pipeline


def analysed(pipeline: Pipeline, spark: SparkSession) -> Typed:
    """The pipeline with its types.

    Raises:
        InvalidSpec: types do not fit; the error names the step and its SQL.
        UserCodeFailed: a user function raised; the error shows the user's line.
    """
    with explain_type_errors(Spark.of(spark), pipeline):
        return Typed(cut(pipeline.outputs), spark)


@contextmanager
def explain_type_errors(spark: Spark, pipeline: Pipeline) -> Iterator[None]:
    """Turn Spark's errors about types into errors that name the step."""
    try:
        yield
    except UserCodeFailed as error:
        if error.do is not None or error.__cause__ is None:
            raise
        where = where_it_was_raised(error.__cause__)
        raise UserCodeFailed(error.need, got=error.got, do=where) from error.__cause__
    except Exception as error:
        if not is_spark_error(error):
            raise
        step = _first_that_fails(pipeline, spark.get())
        raise InvalidSpec(f"{step} needs types that fit", got=_message(error)) from error


def _first_that_fails(pipeline: Pipeline, spark: SparkSession) -> str:
    """The first step that Spark refuses."""
    for node in ancestry(pipeline.outputs):
        try:
            Typed(cut([Output(node, Memory("analysis"), "analysis", ())]), spark)
        except Exception as error:
            if not is_spark_error(error):
                raise
            return step_text(node) if node.at is None else f"{node.at}: {step_text(node)}"
    return f"the pipeline {pipeline.name!r}"


def _message(error: Exception) -> str:
    """Spark's message, without the trace and the plan below it."""
    return str(error).strip().splitlines()[0].split(" SQLSTATE:")[0]
