"""Database tables as sinks: the ledger and the writer that all databases share."""
