"""Arrow columns as numpy arrays, and sums over them that do not depend on order."""
