"""The commands about the history of jobs and about usage, and where their answers come from."""
