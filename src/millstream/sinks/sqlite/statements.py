"""The statements SQLite is given; names are quoted, values are never in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.schema import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.schema import Schema, Type

_KINDS = {
    "boolean": "INTEGER", "byte": "INTEGER", "short": "INTEGER", "int": "INTEGER",
    "long": "INTEGER", "float": "REAL", "double": "REAL", "binary": "BLOB",
}  # fmt: skip


def quoted(name: str) -> str:
    """A name as SQL has it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Names in brackets."""
    return f"({', '.join(map(quoted, names))})"


def kind(type_: Type) -> str:
    """The column type for values of a type; what SQLite has no type for is text."""
    return _KINDS.get(type_.name, "TEXT") if isinstance(type_, Scalar) else "TEXT"


def made(table: str, schema: Schema, keys: Sequence[str]) -> str:
    """A table for rows of a schema."""
    parts = [f"{quoted(field.name)} {kind(field.type)}" for field in schema]
    unique = [f"UNIQUE {listed(keys)}"] if keys else []
    return f"CREATE TABLE {quoted(table)} ({', '.join([*parts, *unique])})"


def inserted(table: str, columns: Sequence[str]) -> str:
    """One row more."""
    marks = ", ".join("?" * len(columns))
    return " ".join(["INSERT INTO", quoted(table), listed(columns), "VALUES", f"({marks})"])


def replaced(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """A row in the place of the one with the same key."""
    others = [name for name in columns if name not in keys]
    sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    do = f"UPDATE SET {sets}" if others else "NOTHING"
    return " ".join([inserted(table, columns), "ON CONFLICT", listed(keys), "DO", do])


def deleted(table: str, keys: Sequence[str]) -> str:
    """The row with a key, where a null is like any other value."""
    same = " AND ".join(f"{quoted(name)} IS ?" for name in keys)
    return " ".join(["DELETE FROM", quoted(table), "WHERE", same])
