"""Jobs: pipelines that run as supervised background processes.

job registry (desired state) → supervisor (starts and stops) → job processes → run logs (what ran)
"""
