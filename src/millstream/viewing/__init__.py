"""Viewing records: escaped, filtered, a page at a time.

The command line and the console share it, so points in time, filters and cursors are written the
same way in both.
"""
