"""SQL expressions: the columns they read, conditions, and the subset that runs on Arrow."""
