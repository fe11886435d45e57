"""Topics as sources: offsets, fetching, and the records of a range."""
