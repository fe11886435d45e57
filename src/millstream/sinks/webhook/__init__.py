"""Webhooks as sinks: signed posts, at least once, to addresses that are checked."""
