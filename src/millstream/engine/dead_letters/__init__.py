"""Late and bad rows: where they go, how they are found, kept, read and retried."""
