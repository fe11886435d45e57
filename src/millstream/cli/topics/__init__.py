"""Commands on the log: topics, groups, brokers, produce, tail, acks."""
