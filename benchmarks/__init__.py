"""Speeds, as ratios to a plain way of doing the same, measured in one run on one machine."""
