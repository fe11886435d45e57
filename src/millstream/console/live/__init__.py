"""Live updates of the console: jobs every second, and topics that are followed."""
