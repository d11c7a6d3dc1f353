"""The code of a job: which files of a folder it is, how they are packed, and where they are kept for its pods.

The requests of a job, and its submission, belong in `coordinator.runs`."""
