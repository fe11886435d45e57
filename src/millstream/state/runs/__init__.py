"""Sorted runs of state in files: written, listed in a manifest, merged, searched and read."""
