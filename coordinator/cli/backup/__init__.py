"""`torchq restore`: which objects a backup has, the step for each object, and the requests that restore the
objects.

The package does not make backups: kubectl prints a backup.
"""
