"""Arrow columns as numpy arrays, and order-independent sums."""
