"""Two lanes with the same decoder, SQL, kernels and files.

wide    Spark tasks decode, shuffle and run kernels; for large batches
narrow  the driver fetches and runs kernels; for small batches
"""
