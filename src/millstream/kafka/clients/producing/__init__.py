"""Producers: records with their acknowledgements, and transactions."""
