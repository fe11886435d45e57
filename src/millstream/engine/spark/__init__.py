"""Spark: the session, steps as DataFrames and as Arrow columns, failures of user code."""
