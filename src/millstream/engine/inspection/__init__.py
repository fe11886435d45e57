"""Types, physical plans and checkpoints of pipelines, without running them."""
