"""Decodes and encodes record values: one package per wire format.

`spec` is the protocol of a format, and all that the engine depends on.
"""
