"""`Spark`: whatever Spark reads and writes, as a bounded source and as a sink."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Self

from millstream.errors import InvalidSpec
from millstream.kafka.secrets import masked, masked_address
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.sources.spec import Opener, Reader, SourceOpening

Option = str | int | float | bool | os.PathLike[str]
_TARGETS = ("path", "dbtable", "table")


@dataclass(frozen=True, init=False, repr=False)
class Spark:
    """A data source of Spark by its format and options: `ms.Spark("jdbc", url=…, dbtable=…)`;
    `ms.Spark.table("catalog.db.name")` is a table of a catalog.

    As a source it is bounded: it has the rows that Spark finds at the first start of a job. Spark's
    tasks write them to the checkpoint once, and every later read, restart or rewind has the same
    rows. `schema` names the columns to read; without it they are those that Spark finds, which
    needs a Spark session that has already started. Where Spark would read a malformed value of
    CSV, JSON or XML as null, the job stops instead, unless you set `mode=`.

    As a sink it appends each batch with Spark's DataFrameWriter, at least once: a batch that was
    written is recorded in the checkpoint and never written again, but a crash between the two, or
    in the middle of a write, writes it again. A missing target is created if Spark creates it.

    References such as `${env:PASSWORD}` in options are resolved where they are used.

    >>> Spark("jdbc", url="jdbc:postgresql://db/shop", dbtable="users", password="hunter2")
    Spark('jdbc', url='jdbc:postgresql://db/shop', dbtable='users', password='***')
    >>> Spark.table("lake.shop.users").name
    'users'
    """

    format: str | None
    catalog_table: str | None
    schema: Schema | None
    name: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    needs_spark: ClassVar[bool] = True

    def __init__(
        self,
        format: str,
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        **options: Option,
    ) -> None:
        if not isinstance(format, str) or not format.strip():
            raise InvalidSpec("Spark needs the name of a format", got=repr(format),
                              do='write ms.Spark("parquet", path="in")')  # fmt: skip
        self._set(format, None, schema, name, options)

    @classmethod
    def table(
        cls,
        table: str,
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        **options: Option,
    ) -> Self:
        """A table of one of the session's catalogs."""
        if not isinstance(table, str) or not all(part.strip() for part in table.split(".")):
            raise InvalidSpec("Spark.table needs the name of a table", got=repr(table),
                              do='write ms.Spark.table("catalog.db.name")')  # fmt: skip
        made = cls.__new__(cls)
        made._set(None, table, schema, name, options)
        return made

    def _set(
        self,
        format_: str | None,
        table: str | None,
        schema: str | Schema | None,
        name: str | None,
        options: dict[str, Option],
    ) -> None:
        texts = {option: _text(option, value) for option, value in options.items()}
        place = table.split(".")[-1] if table else _last_part(texts) or format_
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise InvalidSpec("Spark(name=…) needs a name", got=repr(name), do="leave it out")
        parsed = Schema.parse(schema) if isinstance(schema, str) else schema
        if parsed is not None and not isinstance(parsed, Schema):
            raise InvalidSpec("Spark(schema=…) needs columns as text", got=repr(schema),
                              do='write schema="id long, at timestamp"')  # fmt: skip
        for attribute, value in (("format", format_), ("catalog_table", table),
                                 ("schema", parsed), ("name", name or place),
                                 ("options", tuple(texts.items())),
                                 ("_parsed", parsed)):  # fmt: skip
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        call = (f"Spark({self.format!r}" if self.catalog_table is None
                else f"Spark.table({self.catalog_table!r}")  # fmt: skip
        shown = (f", {name}={masked_address(masked(name, value))!r}"
                 for name, value in self.options)  # fmt: skip
        return f"{call}{''.join(shown)})"

    @property
    def system(self) -> str:
        """What it reads or writes, without secrets."""
        return f"spark {self!r}"

    def into(self, suffix: str) -> Spark:
        """The same sink, with the suffix on its path or table."""
        options: dict[str, Any] = dict(self.options)
        if self.catalog_table is not None:
            return Spark.table(self.catalog_table + suffix, name=self.name, **options)
        assert self.format is not None
        for target in _TARGETS:
            if target in options:
                options[target] = str(options[target]).rstrip("/") + suffix
                return Spark(self.format, name=self.name, **options)
        raise InvalidSpec("new outputs need sinks with a path or a table", got=repr(self),
                          do="rewind with --again instead")  # fmt: skip

    def row_schema(self) -> Schema:
        """The columns of its rows: those given, or those that Spark finds."""
        found: Schema | None = vars(self)["_parsed"]
        if found is None:
            found = self._columns_found()
            object.__setattr__(self, "_parsed", found)
        return found

    def _columns_found(self) -> Schema:
        from millstream.sources.spark.frames import columns_of, read_frame

        spark = None
        if "pyspark.sql" in sys.modules:
            from pyspark.sql import SparkSession

            spark = SparkSession.getActiveSession()
        if spark is None:
            raise InvalidSpec(
                f"reading {self!r} needs its columns before Spark starts", got="no schema=",
                do='write schema="id long, at timestamp", or start a Spark session first',
            )  # fmt: skip
        return columns_of(self, read_frame(self, spark))

    def opener(self) -> Opener:
        """Reads pieces of the files in the checkpoint where they are decoded."""
        from millstream.sources.files.rows import FileRows

        return FileRows("parquet")

    def reader(self, opening: SourceOpening) -> Reader:
        """Open it for one run; the first run reads the rows."""
        from millstream.sources.spark.snapshot import snapshot_reader

        return snapshot_reader(self, opening)


def _text(name: str, value: object) -> str:
    """An option's value as Spark takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if not isinstance(value, str | int | float):
        raise InvalidSpec(f"Spark({name}=…) needs a text, a number or a boolean", got=repr(value),
                          do="write the option as Spark's documentation does")  # fmt: skip
    return str(value)


def _last_part(options: dict[str, str]) -> str | None:
    """The last part of the path or table among the options."""
    if "path" in options:
        return PurePath(options["path"]).name or None
    found = options.get("dbtable") or options.get("table")
    return found if found is not None and found.replace(".", "").isidentifier() else None
