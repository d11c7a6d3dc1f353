"""Signs of life of the processes: checks, and the channel on which a child process reports the checks to its
supervisor.

The package knows neither jobs nor HTTP: `coordinator.http` answers probes with these checks.
"""
