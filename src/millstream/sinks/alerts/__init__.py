"""Alerts and mail: rules per key, notices in an outbox, and their delivery."""
