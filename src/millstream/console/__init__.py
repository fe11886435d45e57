"""The console: a web page and an API that show jobs and control them as `millstream jobs` does.

It runs no user code, opens no path from a request, and listens on the loopback only.
"""
