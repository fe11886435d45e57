"""Records in append-only files: their framing, the segments of a job, archived state files."""
