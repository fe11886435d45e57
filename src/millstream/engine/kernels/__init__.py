"""Chooses the kernel of each step, once the types of its columns are known."""
