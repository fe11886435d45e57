"""The console's guard: tokens, origins, limits on rates, sizes and connections."""
