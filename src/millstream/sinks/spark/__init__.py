"""Sinks that get each batch as a Spark DataFrame."""
