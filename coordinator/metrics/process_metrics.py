"""The metrics of any process: what the system says of it, its version, and whether its Redis answers and is fit.

One rule: names as those of every other program with a client library of Prometheus. A supervisor gives the sums of its
processes.
"""

from kube.process.meter import Metric

BUILD_INFO = Metric(
    name="torchq_build_info",
    kind="gauge",
    help="Always 1; the labels have the version of torchq and the layout of its keys in Redis.",
    labels=("version", "layout"),
    of="each",
    merge="most",
)
REDIS_UP = Metric(
    name="torchq_redis_up",
    kind="gauge",
    help="Whether Redis has answered this process last: 1 or 0.",
    of="each",
    merge="least",
)
REDIS_FIT = Metric(
    name="torchq_redis_fit",
    kind="gauge",
    help="Whether the Redis that has answered last can hold the queues: 1 or 0.",
    of="coordinator",
)
CPU_SECONDS = Metric(
    name="process_cpu_seconds_total",
    kind="counter",
    help="CPU time of the process, and of the worker processes that it supervises.",
    of="each",
)
RESIDENT_BYTES = Metric(
    name="process_resident_memory_bytes", kind="gauge", help="Resident memory, with that of supervised ones.", of="each"
)
VIRTUAL_BYTES = Metric(
    name="process_virtual_memory_bytes", kind="gauge", help="Virtual memory, with that of supervised ones.", of="each"
)
OPEN_FILES = Metric(
    name="process_open_fds", kind="gauge", help="Open file descriptors, with those of supervised ones.", of="each"
)
MOST_FILES = Metric(
    name="process_max_fds", kind="gauge", help="Most file descriptors of one process.", of="each", merge="least"
)
START_TIME = Metric(
    name="process_start_time_seconds",
    kind="gauge",
    help="Start of the process, in seconds since 1970; of the supervisor where there is one.",
    of="each",
    merge="least",
)
METRICS = (
    BUILD_INFO,
    REDIS_UP,
    REDIS_FIT,
    CPU_SECONDS,
    RESIDENT_BYTES,
    VIRTUAL_BYTES,
    OPEN_FILES,
    MOST_FILES,
    START_TIME,
)
