"""Session windows: rows of a key that follow each other closely."""
