"""The operator `process`: a user-defined function per key, with state and timers."""
