"""Avro: one binary datum per record, with or without Confluent's header."""
