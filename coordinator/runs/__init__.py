"""Runs: from a folder and a command to a TorchJob that has its code, for the command line and for other programs.

What a job's code is and where it is kept belongs in `coordinator.code`; nothing here prints."""
