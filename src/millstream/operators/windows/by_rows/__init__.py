"""Windows whose bounds depend on rows: by count, by delta, by punctuation."""
