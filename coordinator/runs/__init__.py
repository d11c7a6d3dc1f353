"""Runs: from a folder and a command to a TorchJob that has its code, for the command line and for other programs.

The selection of a job's code and its storage belong in `coordinator.code`; nothing here prints."""
