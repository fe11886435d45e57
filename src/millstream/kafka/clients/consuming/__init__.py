"""Consumers: groups, offsets, records singly and as Arrow batches, share groups."""
