"""Metrics of batches: facts, instances of operators, progress lines."""
