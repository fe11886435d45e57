"""Routes of the console's API, what a request may say, and pages of records."""
