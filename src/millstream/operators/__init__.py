"""Operators over single rows and keys: what every kernel promises, and `distinct`.

Rows are prepared before the shuffle (hashed, partially aggregated, late ones separated) and
processed after it, together with the state of their keys.
"""
