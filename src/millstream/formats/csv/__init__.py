"""CSV: one row of comma-separated cells for each record; `docs/decisions` says what it means."""
