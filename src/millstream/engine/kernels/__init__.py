"""Which kernel runs a step, once the types of its columns are known."""
