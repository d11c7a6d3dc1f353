"""The code of a job: the selection of the files of a folder, and how these files are packed and kept for the job's
pods.

The requests of a job, and its submission, belong in `coordinator.runs`."""
