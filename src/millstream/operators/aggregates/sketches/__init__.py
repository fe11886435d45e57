"""Sketches: small summaries of many values, with a known error.

    hll           number of distinct values       words → registers → estimate
    log_buckets   quantiles within a relative error

Both are order-free: the same values give the same sketch in any order and any batches.
"""
