"""Protobuf: one message per record, described by a descriptor set."""
