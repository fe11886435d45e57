"""The operator `top`: the largest rows of each window."""
