"""The command `millstream demo`: a web shop, its page views and its mailbox."""
