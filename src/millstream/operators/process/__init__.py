"""The operator `process`: a user's function per key, with state and timers."""
