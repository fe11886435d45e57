"""Joins: rows of two inputs meet by key and time; specs, and kernels over Arrow."""
