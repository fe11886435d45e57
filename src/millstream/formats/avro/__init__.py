"""Avro: one binary datum for each record, with or without Confluent's header."""
