"""Sketches: much smaller than what they were made from, and the error of what they say is known.

    hll           how many different values       words → registers → estimate
    log_buckets   quantiles within a relative error

Both are order-free: the same values give the same sketch in any order and under any cuts.
"""
