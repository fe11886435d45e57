"""The `millstream` command: one file per command group, registered in `main.py`."""
