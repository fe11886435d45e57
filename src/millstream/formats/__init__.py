"""Bytes to Arrow columns and back, one package for each wire format.

`spec` holds what every format promises; the engine knows no more of a format than that.
"""
