"""Charts and live tables of the page: results in a bounded store per job."""
