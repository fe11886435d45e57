"""Aggregates: their specs, accumulators over Arrow, and user-defined functions."""
