"""Session windows: rows of a key with small gaps between them."""
