"""The operator `ordered`: rows leave in order of event time."""
