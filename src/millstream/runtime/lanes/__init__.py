"""Two lanes, one engine: the same decoder, SQL, kernels and files, run wide or short.

wide    Spark tasks decode, shuffle and run kernels; for many bytes
short   Spark reads and runs the SQL, kernels run on the driver; for small batches
"""
