"""Protobuf: one message for each record, described by a descriptor set."""

from millstream.formats.protobuf.format import Protobuf

__all__ = ["Protobuf"]
