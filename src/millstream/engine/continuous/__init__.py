"""Continuous mode: stateless pipelines, row by row, at least once."""
