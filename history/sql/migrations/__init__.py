"""The changes of the tables of the history, by Alembic. A migration only adds: the version before goes on writing.

`versions` has one module for each version of the tables. Nothing here knows the tables as they are now.
"""
