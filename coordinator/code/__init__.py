"""The code of a job: which files of a folder it is, how they are packed, and where they are kept for its pods.

What a job asks for, and how it is submitted, belongs in `coordinator.runs`."""
