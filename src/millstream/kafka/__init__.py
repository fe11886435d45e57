"""Bytes rest: the local broker, topics, producer, consumer."""
