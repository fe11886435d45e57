"""Real Kafka brokers on this machine: started in the background, found again, stopped."""
