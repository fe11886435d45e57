"""Late and dead rows: their sinks, how they are isolated, stored, read and retried."""
