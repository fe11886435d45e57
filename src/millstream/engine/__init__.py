"""Runs pipelines batch by batch, with the same results after any crash.

plan → intent → run (lane) → prepared → sinks → commit
"""
