"""Changes of jobs and queues that a person asks for: their patches, their refusals, and the one place that makes them.

What a command or a page asks the person before does not belong here.
"""
