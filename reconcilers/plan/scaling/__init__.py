"""The change of the number of workers of an admitted job: what is found, and the writes that follow."""
