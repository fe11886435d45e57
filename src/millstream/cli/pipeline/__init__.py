"""Commands on a pipeline file: run, dev, check, plan, commits, state, dead, rewind."""
