"""Objects in memory and on disk, and the journal of their changes.

Nothing here judges what an object contains.
"""
