"""Joins of a stream with a table: as of the event's time, or as the table is now."""
