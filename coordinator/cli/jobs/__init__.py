"""The `torchq job` commands that list, follow, wait for and end jobs, and the code that all commands about several jobs
share.

A command that changes one field of a job belongs into `coordinator.cli.commands.job_control`.
"""
