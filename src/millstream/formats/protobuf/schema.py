"""Parses descriptor sets: from a message to a tree of fields with column types."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec
from millstream.schema import Array, Decimal, Field, Map, Scalar, Schema, Struct, Type

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5
_KINDS: dict[int, tuple[str, int, Type]] = {
    1: ("double", FIXED64, Scalar("double")),
    2: ("float", FIXED32, Scalar("float")),
    3: ("int64", VARINT, Scalar("long")),
    4: ("uint64", VARINT, Decimal(20, 0)),
    5: ("int32", VARINT, Scalar("int")),
    6: ("uint64", FIXED64, Decimal(20, 0)),
    7: ("uint32", FIXED32, Scalar("long")),
    8: ("bool", VARINT, Scalar("boolean")),
    9: ("string", SIZED, Scalar("string")),
    12: ("bytes", SIZED, Scalar("binary")),
    13: ("uint32", VARINT, Scalar("long")),
    14: ("enum", VARINT, Scalar("string")),
    15: ("int32", FIXED32, Scalar("int")),
    16: ("int64", FIXED64, Scalar("long")),
    17: ("sint32", VARINT, Scalar("int")),
    18: ("sint64", VARINT, Scalar("long")),
}
_MESSAGE = 11
_INSTANT = "google.protobuf.Timestamp"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar: its encoding (`wire`) and its type (`kind`)."""

    kind: str
    wire: int
    type: Type
    symbols: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A message; `instant` marks Protobuf's own Timestamp, which is a timestamp column."""

    name: str
    parts: tuple[Part, ...]
    instant: bool = False

    @property
    def type(self) -> Type:
        if self.instant:
            return Scalar("timestamp")
        return Struct(tuple(Field(part.name, part.type) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Part:
    """A field: singular, repeated (`many`) or a `map`; `choice` is the index of its oneof.

    A field with `presence` is null if it is absent, one without has the zero of its type.
    """

    number: int
    name: str
    node: Leaf | Message
    many: bool = False
    map: bool = False
    presence: bool = False
    required: bool = False
    choice: int = -1

    @property
    def type(self) -> Type:
        if self.map:
            assert isinstance(self.node, Message)
            key, value = self.node.parts
            return Map(key.type, value.type)
        return Array(self.node.type) if self.many else self.node.type


@lru_cache(maxsize=32)
def message_descriptor(files: bytes, name: str) -> Descriptor:
    """Return the message with that name in a descriptor set.

    Raises:
        InvalidSpec: the bytes are not a descriptor set, or contain no such message.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        described = descriptor_pb2.FileDescriptorSet.FromString(files)
    except DecodeError:
        described = descriptor_pb2.FileDescriptorSet()
    if not described.file:
        raise InvalidSpec(
            "format=\"protobuf\" needs a descriptor set", got=f"{len(files)} other bytes",
            do="make it with protoc --include_imports --descriptor_set_out=FILE",
        )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    try:
        _add_all(pool, described)
        found: Descriptor = pool.FindMessageTypeByName(name)
    except KeyError:
        known = sorted(f"{file.package}.{message.name}".lstrip(".")
                       for file in described.file for message in file.message_type)  # fmt: skip
        raise InvalidSpec(
            "the descriptor set needs to hold the message",
            got=repr(name),
            do=f"name one of {', '.join(known)}",
        ) from None
    return found


@lru_cache(maxsize=32)
def message_index(files: bytes, name: str) -> tuple[int, ...]:
    """The index of a message in its file; for a nested message, the indexes from the outermost
    message to its own."""
    found = message_descriptor(files, name)
    path: list[int] = []
    while found.containing_type is not None:
        inside = found.containing_type
        path.insert(0, [one.name for one in inside.nested_types].index(found.name))
        found = inside
    return (list(found.file.message_types_by_name).index(found.name), *path)


def _add_all(pool: Any, described: Any) -> None:
    """Add files after those they import; well-known files may be missing from the set."""
    waiting = {file.name: file.SerializeToString() for file in described.file}
    needs = {file.name: list(file.dependency) for file in described.file}
    done: set[str] = set()

    def add(name: str) -> None:
        if name not in done:
            done.add(name)
            content = waiting[name] if name in waiting else _well_known(name)
            for needed in needs.get(name, ()):
                add(needed)
            pool.AddSerializedFile(content)

    for name in waiting:
        add(name)


def _well_known(name: str) -> bytes:
    """The descriptor of one of Protobuf's own files, which import only each other."""
    from importlib import import_module

    folder, _, file = name.removesuffix(".proto").rpartition("/")
    module = f"google.protobuf.{file}_pb2" if folder == "google/protobuf" else f"no.{name}"
    try:
        content: bytes = import_module(module).DESCRIPTOR.serialized_pb
    except ImportError:
        raise InvalidSpec(
            "a descriptor set needs the files it imports",
            got=f"none named {name}",
            do="make it with protoc --include_imports",
        ) from None
    return content


@lru_cache(maxsize=32)
def parse_message(files: bytes, name: str) -> Message:
    """Parse a message.

    Raises:
        InvalidSpec: it has no field, contains itself, or uses groups.
    """
    node = _message(message_descriptor(files, name), ())
    if not node.parts or node.instant:
        raise InvalidSpec("a row needs a message with fields", got=name)
    return node


def row_schema(files: bytes, name: str) -> Schema:
    """The columns of a message's rows."""
    return Schema(tuple(Field(part.name, part.type) for part in parse_message(files, name).parts))


def _message(found: Descriptor, above: tuple[str, ...]) -> Message:
    if found.full_name in above:
        raise InvalidSpec(
            "a column needs a type that is not recursive", got=f"{found.full_name} contains itself"
        )
    inside = (*above, found.full_name)
    parts = tuple(_part(field, inside) for field in found.fields)
    return Message(found.full_name, parts, found.full_name == _INSTANT)


def _part(field: FieldDescriptor, above: tuple[str, ...]) -> Part:
    many = field.is_repeated
    inner = field.message_type
    entry = inner is not None and inner.GetOptions().map_entry
    choice = field.containing_oneof
    return Part(
        number=field.number,
        name=field.name,
        node=_node(field, above),
        many=many and not entry,
        map=entry,
        presence=field.has_presence,
        required=field.is_required,
        choice=-1 if choice is None else choice.index,
    )


def _node(field: FieldDescriptor, above: tuple[str, ...]) -> Leaf | Message:
    if field.type == _MESSAGE:
        assert field.message_type is not None
        return _message(field.message_type, above)
    if field.type not in _KINDS:
        raise InvalidSpec(
            "a column needs a type that Millstream supports", got=f"the group {field.full_name}"
        )
    kind, wire, type_ = _KINDS[field.type]
    if field.enum_type is None:
        return Leaf(kind, wire, type_)
    names: dict[int, str] = {}
    for value in field.enum_type.values:
        names.setdefault(value.number, value.name)
    return Leaf(kind, wire, type_, tuple(sorted(names.items())))
