"""Avro: one binary datum for each record, in Confluent's framing or bare."""

from millstream.formats.avro.format import Avro

__all__ = ["Avro"]
