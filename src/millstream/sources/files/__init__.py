"""Files as sources: which files a job has seen, and the rows of a range."""
