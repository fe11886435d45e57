"""Resolves `format=` and `schema=`, without importing the formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.formats.spec import Format

FORMATS = ("json", "avro", "protobuf", "csv", "text", "bytes")
_FRAMED = ("avro", "protobuf")
_ONE_COLUMN = {"text": "value string", "bytes": "value binary"}


def columns_of(name: str, schema: str | os.PathLike[str] | Schema | None) -> Schema | None:
    """The columns of a format whose schema is column text; None without a schema.

    Raises:
        InvalidSpec: the format cannot carry them.
    """
    if schema is None:
        schema = _ONE_COLUMN.get(name)
        if schema is None:
            return None
    if isinstance(schema, os.PathLike):
        raise InvalidSpec(f'format="{name}" needs a schema as text', got=repr(schema),
                          do='write schema="auction long, price double"')  # fmt: skip
    parsed = schema if isinstance(schema, Schema) else Schema.parse(schema)
    if name != "json":
        format_of(name).check(parsed)
    return parsed


def format_of(name: str) -> Format:
    """Return a format that needs only its name."""
    if name == "json":
        from millstream.formats.json.format import Json

        return Json()
    if name == "csv":
        from millstream.formats.csv.format import Csv

        return Csv()
    from millstream.formats.text import Bytes, Text

    return Text() if name == "text" else Bytes()


def framed_format(
    name: str, schema: str | os.PathLike[str] | Schema | None, framing: str | None
) -> tuple[Format, Schema | None] | None:
    """Return a format that is described by a file, and the columns of its rows.

    None for the other formats, which have column text and no framing.

    Raises:
        InvalidSpec: there is no such format, or the arguments do not describe it.
    """
    if name not in FORMATS:
        raise InvalidSpec(f"a topic needs a format among {', '.join(FORMATS)}", got=repr(name))
    if name not in _FRAMED:
        if framing is not None:
            raise InvalidSpec('framing= needs format="avro" or "protobuf"', got=f'format="{name}"')
        return None
    return _avro(schema, framing) if name == "avro" else _protobuf(schema, framing)


def _avro(
    schema: str | os.PathLike[str] | Schema | None, framing: str | None
) -> tuple[Format, Schema | None]:
    from millstream.formats.avro.format import Avro
    from millstream.formats.avro.schema import derive_schema
    from millstream.formats.framing import Framing

    text: str | None = None
    if isinstance(schema, Schema):
        text = derive_schema(schema)
    elif schema is not None:
        text = _avro_text(schema)
    made = Avro(text, Framing.of(framing))
    return made, made.row_schema()


def _avro_text(schema: str | os.PathLike[str]) -> str:
    """The schema as JSON: given as such, read from a file, or derived from column text."""
    from millstream.formats.avro.schema import derive_schema

    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "["):
        return schema
    if isinstance(schema, os.PathLike) or schema.endswith(".avsc") or Path(schema).is_file():
        return _read(Path(schema), "the Avro schema").decode()
    return derive_schema(Schema.parse(schema))


def _protobuf(
    schema: str | os.PathLike[str] | Schema | None, framing: str | None
) -> tuple[Format, Schema]:
    from millstream.formats.framing import BARE, Framing
    from millstream.formats.protobuf.format import Protobuf

    file, _, message = schema.rpartition("#") if isinstance(schema, str) else ("", "", "")
    if not file or not message:
        raise InvalidSpec(
            'format="protobuf" needs a descriptor set and a message',
            got=f"schema={schema!r}",
            do='write schema="shop.desc#shop.Order"; protoc --include_imports '
            "--descriptor_set_out=shop.desc makes the file",
        )
    files = _read(Path(file), "the descriptor set")
    made = Protobuf(files, message, BARE if framing is None else Framing.of(framing))
    return made, made.row_schema()


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSpec(f"a topic needs {what}", got=f"{path}: {error.strerror}",
                          do="name a file that exists and is readable") from None  # fmt: skip
