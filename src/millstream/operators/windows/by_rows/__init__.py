"""Windows whose bounds follow from rows: by count, by delta, by punctuation."""
