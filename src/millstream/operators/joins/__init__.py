"""Joins: rows of two inputs are matched by key and time. Specs, and kernels over Arrow."""
