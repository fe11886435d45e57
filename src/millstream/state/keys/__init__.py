"""Keys of rows: which are equal, how they are ordered, how they are hashed."""
