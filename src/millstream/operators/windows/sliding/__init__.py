"""Sliding windows: for each row what its key had in the time up to it."""
