"""`torchq restore`: which objects a backup has, what is to be done about each, and the requests that restore the
objects.

The package does not make backups: kubectl prints a backup.
"""
