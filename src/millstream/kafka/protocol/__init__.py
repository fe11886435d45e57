"""Kafka's own protocol over plain sockets: requests, responses and record batches."""
