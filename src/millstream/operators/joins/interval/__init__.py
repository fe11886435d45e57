"""The join of two streams: pairs of rows near each other in event time."""
