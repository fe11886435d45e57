"""A pipeline in words: its logical plan, and what each step remembers, emits and promises."""
