"""The subset of Spark SQL that runs on Arrow columns with exactly Spark's semantics."""
