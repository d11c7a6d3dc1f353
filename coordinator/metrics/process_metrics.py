"""The metrics of any process: the figures of the operating system about the process, its version, and whether its Redis
answers and is fit.

One rule: the names are those that every client library of Prometheus uses. A supervisor gives the sums of its
processes.
"""

from kube.process.meter import Kind, Merge, Metric


def _metric(name: str, text: str, kind: Kind = "gauge", merge: Merge = "sum", labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name=name, kind=kind, help=text, labels=labels, of="each", merge=merge)


BUILD_INFO = _metric(
    "torchq_build_info",
    "Always 1; the labels have the version of torchq and the layout of its keys in Redis.",
    merge="most",
    labels=("version", "layout"),
)
REDIS_UP = Metric(
    name="torchq_redis_up",
    kind="gauge",
    help="Whether Redis has answered this process last: 1 or 0.",
    of="queueing",
    merge="least",
)
REDIS_FIT = Metric(
    name="torchq_redis_fit",
    kind="gauge",
    help="Whether the Redis that has answered last can hold the queues: 1 or 0.",
    of="coordinator",
)
CPU_SECONDS = _metric(
    "process_cpu_seconds_total", "CPU time of the process, and of the worker processes that it supervises.", "counter"
)
RESIDENT_BYTES = _metric("process_resident_memory_bytes", "Resident memory, with that of supervised ones.")
VIRTUAL_BYTES = _metric("process_virtual_memory_bytes", "Virtual memory, with that of supervised ones.")
OPEN_FILES = _metric("process_open_fds", "Open file descriptors, with those of supervised ones.")
MOST_FILES = _metric("process_max_fds", "Most file descriptors of one process.", merge="least")
START_TIME = _metric(
    "process_start_time_seconds",
    "Start of the process, in seconds since 1970; of the supervisor where there is one.",
    merge="least",
)
METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
