"""Operators over single rows and keys: what every kernel promises, and `distinct`.

A row is prepared before the shuffle (hashed, partially added up, parted if late) and taken
in after it, beside the state of its key.
"""
