"""Two lanes, one engine: the same decoder, SQL, kernels and files, run wide or narrow.

wide    Spark tasks decode, shuffle and run kernels; for many bytes
narrow  the driver fetches and runs kernels, Spark runs the SQL; for small batches
"""
