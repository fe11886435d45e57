"""Commands on the local stack: up, down, status, jobs, alerts, doctor."""
