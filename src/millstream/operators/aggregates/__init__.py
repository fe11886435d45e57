"""Aggregates: their specs, accumulators over Arrow, and functions of the user's own."""
