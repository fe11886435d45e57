"""The console's API: routes, request parsing, pages of records."""
