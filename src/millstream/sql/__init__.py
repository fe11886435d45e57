"""SQL expressions as text: the columns they name, conditions, and the subset that runs on Arrow."""
