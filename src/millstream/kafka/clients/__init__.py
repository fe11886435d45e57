"""Clients of the log: producers, consumers, share consumers, and what they are configured with."""
