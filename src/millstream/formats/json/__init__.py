"""JSON: one object for each record; `docs/decisions/0004-json.md` says what each byte means."""
