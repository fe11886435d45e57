"""Windows with bounds known from time alone: tumbling, hopping, processing time."""
