"""The recorder: a process that writes what it sees of jobs, queues and pods into the history.

Nothing here decides about a job, and nobody needs the recorder: it may be down, slow or doubled. What an object says
about the history is in the package `history`.
"""
