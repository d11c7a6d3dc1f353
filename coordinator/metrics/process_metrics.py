"""The metrics of any process: the figures of the operating system about the process, its version, and whether its Redis
answers and is fit.

One rule: the names are those that every client library of Prometheus uses. A supervisor gives the sums of its
processes.
"""

from kube.process.meter import Metric

BUILD_INFO = Metric(
    "torchq_build_info",
    "Always 1; the labels have the version of torchq and the layout of its keys in Redis.",
    of="each",
    merge="most",
    labels=("version", "layout"),
)
REDIS_UP = Metric(
    "torchq_redis_up", "Whether Redis has answered this process last: 1 or 0.", of="queueing", merge="least"
)
REDIS_FIT = Metric(
    "torchq_redis_fit", "Whether the Redis that has answered last can hold the queues: 1 or 0.", of="coordinator"
)
CPU_SECONDS = Metric(
    "process_cpu_seconds_total", "CPU time of the process, and of the worker processes that it supervises.", of="each"
)
RESIDENT_BYTES = Metric("process_resident_memory_bytes", "Resident memory, with that of supervised ones.", of="each")
VIRTUAL_BYTES = Metric("process_virtual_memory_bytes", "Virtual memory, with that of supervised ones.", of="each")
OPEN_FILES = Metric("process_open_fds", "Open file descriptors, with those of supervised ones.", of="each")
MOST_FILES = Metric("process_max_fds", "Most file descriptors of one process.", of="each", merge="least")
START_TIME = Metric(
    "process_start_time_seconds",
    "Start of the process, in seconds since 1970; of the supervisor where there is one.",
    of="each",
    merge="least",
)
METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
