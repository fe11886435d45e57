"""What batches did, in figures: facts, instances of operators, progress lines."""
