"""Functions that run as jobs: what goes, how it is described, and what is refused. A function goes by its name; nothing
is pickled."""
