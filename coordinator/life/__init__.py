"""Signs of life of the processes: checks, and the channel on which a child process tells its supervisor of them.

It knows neither jobs nor HTTP: `coordinator.http` answers probes with these checks.
"""
