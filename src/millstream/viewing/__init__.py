"""Records as people look at them: made harmless, filtered, a page at a time.

What the command line and the console share, so that a moment, a filter and a place in a topic
are written and mean the same in both.
"""
