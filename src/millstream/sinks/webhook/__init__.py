"""Webhooks: signed posts to checked addresses, at least once."""
