"""SQLite statements; names are quoted, values are bound."""

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
    """A quoted name."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Names in parentheses."""
    return f"({', '.join(map(quoted, names))})"


def kind(type_: Type) -> str:
    """The SQLite column type for a type; TEXT if SQLite has no such type."""
    return _KINDS.get(type_.name, "TEXT") if isinstance(type_, Scalar) else "TEXT"


def create_table(table: str, schema: Schema, keys: Sequence[str]) -> str:
    """Create a table for rows of a schema."""
    parts = [f"{quoted(field.name)} {kind(field.type)}" for field in schema]
    unique = [f"UNIQUE {listed(keys)}"] if keys else []
    return f"CREATE TABLE {quoted(table)} ({', '.join([*parts, *unique])})"


def insert(table: str, columns: Sequence[str]) -> str:
    """Insert a row."""
    marks = ", ".join("?" * len(columns))
    return " ".join(["INSERT INTO", quoted(table), listed(columns), "VALUES", f"({marks})"])


def upsert(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Insert a row, or update the row with the same key."""
    others = [name for name in columns if name not in keys]
    sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    do = f"UPDATE SET {sets}" if others else "NOTHING"
    return " ".join([insert(table, columns), "ON CONFLICT", listed(keys), "DO", do])


def delete(table: str, keys: Sequence[str]) -> str:
    """Delete the row with a key; nulls compare as equal."""
    same = " AND ".join(f"{quoted(name)} IS ?" for name in keys)
    return " ".join(["DELETE FROM", quoted(table), "WHERE", same])
