"""Sliding windows: for each row, the rows of its key in the time up to it."""
