"""SQLite tables as sinks: append, upsert and delete, exactly once."""
