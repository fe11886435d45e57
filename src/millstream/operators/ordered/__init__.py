"""The operator `ordered`: sorts rows by event time."""
