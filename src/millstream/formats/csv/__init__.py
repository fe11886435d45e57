"""CSV: one row of comma-separated cells per record; defined in decision record 13."""
