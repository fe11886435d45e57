"""When the next batch may start, and what an idle run waits for."""
