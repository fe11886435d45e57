"""Operators over single rows and keys: what every kernel promises, and `distinct`.

    rows -- prepare --> exchange -- shuffle by key --> run(state) --> results, late rows
"""
