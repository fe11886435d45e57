"""The terminal: options, output, confirmation, exit codes, and files with pipelines."""
