"""`torchq local`: the supervisor of the embedded cluster on this machine, its start and its end.

This is the only package that imports `embedded`.
"""
