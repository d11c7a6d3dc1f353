"""What is read of the queues: for the HTTP API and for the command line.

Nothing here changes anything.
"""
