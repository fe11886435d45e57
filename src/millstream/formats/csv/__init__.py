"""CSV: one row of comma-separated text for each record; `docs/decisions` says what it means."""

from millstream.formats.csv.format import Csv

__all__ = ["Csv"]
