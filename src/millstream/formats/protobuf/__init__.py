"""Protobuf: one message for each record, described by a descriptor set."""
