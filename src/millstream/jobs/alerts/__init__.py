"""Alerts on jobs: their state, and rules over a job's own metrics."""
