"""Charts and live tables on the page: results in a bounded store per job."""
