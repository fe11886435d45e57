"""Bytes become rows: where a stream begins, and how its ranges are read.

spec (a value) -- reader (what is there, what lies in a range) --> raw records -- decode --> rows
"""
