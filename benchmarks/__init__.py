"""Benchmarks: Millstream and other engines, measured in turn on one machine."""
