"""Recovery by hand: rewind a job, or continue without data that is lost or damaged."""
