"""Looking at pipelines and checkpoints without running: types, comparisons, physical plans."""
