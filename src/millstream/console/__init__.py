"""The console: a page and an API for looking at jobs, and the verbs of `millstream jobs`.

It runs no code and opens no path from a request, and listens on the loopback only.
"""
