"""What a run waits for: pings of the systems it uses, and what it shows."""
