"""Objects in memory and on disk, and the journal of their changes.

The package does not judge the content of an object.
"""
