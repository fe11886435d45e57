"""The public API: streams, tables, windows and pipelines as plain values."""
