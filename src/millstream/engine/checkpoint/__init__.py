"""The checkpoint: durable records of every batch, staged files, and their clean-up."""
