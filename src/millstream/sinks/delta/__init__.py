"""Delta Lake tables as sinks: one commit of the table per batch."""
