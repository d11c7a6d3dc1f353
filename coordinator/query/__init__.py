"""Read-only queries about the queues, for the HTTP API and the command line.

Nothing here changes anything.
"""
