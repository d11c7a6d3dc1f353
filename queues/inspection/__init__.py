"""The inspection of the content of Redis for an admin, and its reset.

Nothing here takes part in picking or dispatching.
"""
