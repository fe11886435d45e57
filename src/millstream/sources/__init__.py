"""Sources: where streams begin, and how ranges of offsets are read and decoded.

spec (a value) -- reader (offsets, the records of a range) --> raw records -- decode --> rows
"""
