"""Kafka's protocol: requests, responses and record batches as bytes. See docs/kafka-protocol.md."""
