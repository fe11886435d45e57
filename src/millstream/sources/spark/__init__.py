"""Whatever Spark reads as a bounded source: its rows are read once, into the checkpoint."""
