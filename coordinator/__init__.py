"""The processes and the command line: coordinator, worker, `torchq`.

Modules of this folder are the settings and the errors that its packages share.
"""
