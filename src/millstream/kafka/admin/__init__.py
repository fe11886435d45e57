"""Topics, consumer groups and brokers: listed, described and changed."""
