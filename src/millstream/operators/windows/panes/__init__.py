"""Panes: results of windows shown early, on time and late."""
