"""Keys of rows: equality, order and hashes."""
