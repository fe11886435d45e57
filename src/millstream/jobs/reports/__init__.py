"""What jobs did and how they stand: run logs, lag, history, late and dead rows."""
