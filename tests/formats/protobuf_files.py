"""A hand-made descriptor set with every kind of field; needs no protoc."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2 as d

F = d.FieldDescriptorProto
KINDS: dict[str, Any] = {
    "double": F.TYPE_DOUBLE, "float": F.TYPE_FLOAT, "int64": F.TYPE_INT64,
    "uint64": F.TYPE_UINT64, "int32": F.TYPE_INT32, "fixed64": F.TYPE_FIXED64,
    "fixed32": F.TYPE_FIXED32, "bool": F.TYPE_BOOL, "string": F.TYPE_STRING,
    "bytes": F.TYPE_BYTES, "uint32": F.TYPE_UINT32, "sfixed32": F.TYPE_SFIXED32,
    "sfixed64": F.TYPE_SFIXED64, "sint32": F.TYPE_SINT32, "sint64": F.TYPE_SINT64,
}  # fmt: skip
COLOR, INNER, INSTANT = ".shop.Color", ".shop.Inner", ".google.protobuf.Timestamp"


def field(name: str, number: int, kind: str, **more: Any) -> Any:
    """`kind` is the name of a scalar, or the full name of an enum or a message."""
    label = F.LABEL_REPEATED if more.pop("many", False) else F.LABEL_OPTIONAL
    if kind in KINDS:
        return F(name=name, number=number, type=KINDS[kind], label=label, **more)
    type_ = F.TYPE_ENUM if kind == COLOR else F.TYPE_MESSAGE
    return F(name=name, number=number, type=type_, type_name=kind, label=label, **more)


def descriptor_set() -> bytes:
    """`shop.Bid` with six plain fields, and `shop.Wide` with everything."""
    file = d.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3",
                                 dependency=["google/protobuf/timestamp.proto"])  # fmt: skip
    colors = file.enum_type.add(name="Color")
    for name, number in (("RED", 0), ("BLUE", 5), ("NEGATIVE", -1)):
        colors.value.add(name=name, number=number)
    bid = file.message_type.add(name="Bid")
    bid.field.extend([
        field("auction", 1, "int64"), field("bidder", 2, "int64"), field("price", 3, "double"),
        field("channel", 4, "string"), field("url", 5, "string"), field("ts", 6, INSTANT),
    ])  # fmt: skip
    inner = file.message_type.add(name="Inner")
    inner.field.extend([field("x", 1, "sint32"), field("names", 2, "string", many=True),
                        field("at", 3, INSTANT)])  # fmt: skip
    _wide(file.message_type.add(name="Wide"))
    return d.FileDescriptorSet(file=[file]).SerializeToString()


def _wide(wide: Any) -> None:
    entry = wide.nested_type.add(name="CountsEntry")
    entry.field.extend([field("key", 1, "string"), field("value", 2, "int64")])
    entry.options.map_entry = True
    wide.oneof_decl.add(name="either")
    wide.oneof_decl.add(name="_perhaps")
    fields = [field(kind, number, kind) for number, kind in enumerate(KINDS, start=1)]
    fields += [
        field("color", 20, COLOR), field("inner", 21, INNER), field("inners", 22, INNER, many=True),
        field("numbers", 23, "int32", many=True), field("reals", 24, "double", many=True),
        field("colors", 25, COLOR, many=True), field("texts", 26, "string", many=True),
        field("counts", 27, ".shop.Wide.CountsEntry", many=True), field("at", 28, INSTANT),
        field("left", 29, "int64", oneof_index=0), field("right", 30, "string", oneof_index=0),
        field("perhaps", 31, "int32", oneof_index=1, proto3_optional=True),
    ]  # fmt: skip
    wide.field.extend(fields)


def recursive() -> bytes:
    """A message that contains itself."""
    file = d.FileDescriptorProto(name="tree.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Tree").field.append(field("below", 1, ".shop.Tree"))
    return d.FileDescriptorSet(file=[file]).SerializeToString()


def older() -> bytes:
    """`shop.Old` in proto2: required fields and closed enums."""
    file = d.FileDescriptorProto(name="old.proto", package="shop", syntax="proto2")
    colors = file.enum_type.add(name="Color")
    for number, name in enumerate(("RED", "BLUE"), start=1):
        colors.value.add(name=name, number=number)
    message = file.message_type.add(name="Old")
    message.field.extend([
        F(name="id", number=1, type=F.TYPE_INT64, label=F.LABEL_REQUIRED), field("s", 2, "string"),
        F(name="n", number=3, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL, default_value="7"),
        field("color", 4, COLOR), field("numbers", 5, "int32", many=True),
    ])  # fmt: skip
    return d.FileDescriptorSet(file=[file]).SerializeToString()


def several() -> bytes:
    """Sibling and nested messages: `m.First`, `m.Second` and those inside them."""
    file = d.FileDescriptorProto(name="several.proto", package="m", syntax="proto3")
    for outer in ("First", "Second", "Third"):
        message = file.message_type.add(name=outer)
        message.field.append(field("id", 1, "int64"))
        entry = message.nested_type.add(name="CountsEntry")
        entry.field.extend([field("key", 1, "string"), field("value", 2, "int64")])
        entry.options.map_entry = True
        message.field.append(field("counts", 2, f".m.{outer}.CountsEntry", many=True))
        for inner in ("Left", "Right"):
            nested = message.nested_type.add(name=inner)
            nested.field.append(field("id", 1, "int64"))
            nested.nested_type.add(name="Deep").field.append(field("id", 1, "int64"))
    for number in range(70):
        file.message_type.add(name=f"More{number}").field.append(field("id", 1, "int64"))
    return d.FileDescriptorSet(file=[file]).SerializeToString()
