"""Pipelines run: planned, written down, computed, sent, committed; the same after any crash.

plan → intent → run (lane) → prepared → sinks → commit
"""
