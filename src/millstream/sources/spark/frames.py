"""DataFrames of `Spark` values: their options, their columns, and Spark's errors as sentences."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec, MillstreamError
from millstream.kafka.secrets import masked, resolve, scrub
from millstream.schema import Array, Decimal, Field, Map, Schema, Struct, arrow_type
from millstream.sources.files.parquet_columns import fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from millstream.schema import Type
    from millstream.sources.spark.spark import Spark

_PARSED = ("csv", "json", "xml")
_IN_FILES = ("parquet", "orc", "csv", "json", "xml", "text", "avro", "delta")
_DESCRIPTION = "spark.job.description"
_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
PACKAGE = "add its package to the session: --conf spark.jars.packages=GROUP:ARTIFACT:VERSION"


def read_frame(source: Spark, spark: SparkSession) -> DataFrame:
    """The rows that Spark finds now.

    Raises:
        InvalidSpec: Spark cannot find them.
    """
    with spark_errors(source, f"reading {source!r} needs rows that Spark finds"):
        options = options_of(source, spark)
        if source.catalog_table is not None:
            return spark.read.options(**options).table(source.catalog_table)
        assert source.format is not None
        reader = spark.read.format(source.format)
        if source.format.lower() in _PARSED:
            lower = {name.lower() for name in options}
            reader = reader.options(**{} if "mode" in lower else {"mode": "FAILFAST"})
            if source.format.lower() == "csv" and "enforceschema" not in lower:
                reader = reader.option("enforceSchema", "false")
            if source.schema is not None:
                reader = reader.schema(source.schema.ddl())
        return reader.options(**options).load()


def options_of(source: Spark, spark: SparkSession) -> dict[str, str]:
    """The options with their references resolved; a relative path is one of this process."""
    found = {name: resolve(value, setting=f"the option {name}") for name, value in source.options}
    path = found.get("path", "")
    if path and ":" not in path and (source.format or "").lower() in _IN_FILES:
        files = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")
        if files.startswith("file:"):
            found["path"] = str(Path(path).absolute())
    return found


def columns_of(source: Spark, frame: DataFrame) -> Schema:
    """The columns of a DataFrame.

    Raises:
        InvalidSpec: a column has a type that Millstream does not have; the error names both.
    """
    return Schema(tuple(Field(part.name, _type_of(source, part.name, part.dataType), part.nullable)
                        for part in frame.schema.fields))  # fmt: skip


def selected(source: Spark, frame: DataFrame) -> DataFrame:
    """The columns of the source's schema.

    Raises:
        InvalidSpec: a column is missing, or its values are of another type.
    """
    found = {part.name: part.dataType for part in frame.schema.fields}
    for field in source.row_schema():
        if field.name not in found:
            raise InvalidSpec(
                f"reading {source!r} needs the column {field.name!r}, which schema= names",
                got=", ".join(found) or "no columns",
                do="change schema=",
            )
        type_ = _type_of(source, field.name, found[field.name])
        if not fits(arrow_type(type_), field.type):
            raise InvalidSpec(
                f"reading {source!r} needs {field.name} as {field.type.ddl()}, as schema= says",
                got=type_.ddl(),
                do=f"write {field.name} {type_.ddl()}",
            )
    names = (name.replace("`", "``") for name in source.row_schema().names)
    return frame.select(*(f"`{name}`" for name in names))


def _type_of(source: Spark, name: str, kind: DataType) -> Type:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    def converted(kind: DataType) -> Type:
        if isinstance(kind, DecimalType):
            return Decimal(kind.precision, kind.scale)
        if isinstance(kind, ArrayType):
            return Array(converted(kind.elementType))
        if isinstance(kind, MapType):
            return Map(converted(kind.keyType), converted(kind.valueType))
        if isinstance(kind, StructType):
            return Struct(tuple(Field(part.name, converted(part.dataType), part.nullable)
                                for part in kind.fields))  # fmt: skip
        return Schema.parse(f"c {kind.typeName()}")["c"].type

    try:
        return converted(kind)
    except InvalidSpec:
        raise InvalidSpec(
            f"reading {source!r} needs columns of types that Millstream has",
            got=f"{name} {kind.simpleString()}",
            do="cast it in a view, or leave it out of schema=",
        ) from None


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Say in Spark's page what the jobs of a block are for."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


@contextmanager
def spark_errors(
    source: Spark, need: str, *, do: str = "check its format and options",
    kind: type[MillstreamError] = InvalidSpec,
) -> Iterator[None]:  # fmt: skip
    """Turn an error of Spark into one sentence without secrets."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = said(error)
        hidden = tuple(resolve(value, setting=name) for name, value in source.options
                       if masked(name, value) != value or "${" in value)  # fmt: skip
        if _NOT_FOUND in str(error):
            raise InvalidSpec(f"Spark needs the data source {source.format!r}", got="no such one",
                              do=PACKAGE) from error  # fmt: skip
        kind = InvalidSpec if isinstance(error, AnalysisException) else kind
        raise kind(need, got=scrub(text, hidden), do=do) from error


def said(error: BaseException) -> str:
    """The first line of what caused an error."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        cause = getattr(error, "_origin", None)
    text = str(error)
    while cause is not None:
        text = cause.getMessage() or cause.toString()
        cause = cause.getCause()
    return text.strip().partition("\n")[0].partition(" SQLSTATE:")[0]
