"""Engines under measurement, each in a process of its own: warm up, then do the work once.

`python -m benchmarks.engines.<engine> <work> <address> <json>` prints one line of JSON.
"""
