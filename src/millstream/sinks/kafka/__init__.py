"""Topics as sinks: messages, record batches, and one transaction per batch."""
