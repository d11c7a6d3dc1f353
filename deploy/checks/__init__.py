"""The rules for every set of objects that installs torchq, whoever rendered it.

Pure functions: they take the objects and return the problems, one sentence each. No Helm, no kubectl and no cluster.
"""
