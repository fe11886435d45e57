"""Answers leave: staged rows go to a system outside, each batch once.

staged files -- encode --> writer -- one transaction per batch --> topic, table, …
"""
