"""The explanation of a pipeline: its logical plan, and what each step keeps and emits."""
