"""JSON: one object per record; defined in `docs/decisions/0004-json.md`."""
