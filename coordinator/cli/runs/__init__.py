"""What `torchq run` says: about the code, about a dry run, and about the job until its end.

How a run is packed and submitted belongs in `coordinator.runs`."""
