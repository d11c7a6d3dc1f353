"""What an admin reads of Redis, and how its content is reset.

Nothing here takes part in picking or dispatching.
"""
