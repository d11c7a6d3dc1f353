"""The metrics of coordinators: which coordinator leads, and the queues as the leader sees them.

One rule: the gauges of queues come from the leader alone and end with its term, so that no two processes show these
gauges.
"""

from kube.process.meter import REQUEST_BUCKETS, Metric

LEASE_NAME = "torchq-coordinator"
"""The label of the election: the name of the Lease."""


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, text, of="leader", labels=labels)


MASTER_STATUS = Metric(
    "leader_election_master_status", "Whether this coordinator leads: 1 or 0.", of="coordinator", labels=("name",)
)
PENDING_JOBS = _gauge(
    "torchq_pending_jobs",
    "Jobs that wait in a queue: active ones have a place in its order, inadmissible ones (held, parked) have none.",
    "queue",
    "status",
)
ADMITTED_JOBS = _gauge("torchq_admitted_jobs", "Jobs that hold room in a queue.", "queue")
OLDEST_WAIT = _gauge(
    "torchq_queue_oldest_wait_seconds", "For how long the oldest of a queue's first jobs has waited.", "queue"
)
WEIGHT = _gauge("torchq_queue_weight", "Weight of a queue.", "queue")
SHARE = _gauge("torchq_queue_share_ratio", "Part of all usage that a queue has now, by the setting `cost`.", "queue")
TARGET_SHARE = _gauge(
    "torchq_queue_target_share_ratio", "Part of the weights of all busy queues that a busy queue has.", "queue"
)
LAG = _gauge(
    "torchq_queue_lag", "Cost by which a queue is behind its share, or, below 0, ahead of it, since its start.", "queue"
)
QUEUE_INFO = _gauge(
    "torchq_queue_info", "Always 1; the labels have settings of a queue.", "queue", "cohort", "ordering", "stop_policy"
)
QUOTA = _gauge("torchq_queue_quota", "Quota of a queue. Without a quota there is no series.", "queue", "resource")
USAGE = _gauge("torchq_queue_usage", "Sum of the charges of a queue's admitted jobs.", "queue", "resource")
BORROWING_LIMIT = _gauge(
    "torchq_queue_borrowing_limit", "Most that a queue may use beyond its quota.", "queue", "resource"
)
COHORT_QUOTA = _gauge("torchq_cohort_quota", "Sum of the quotas of a cohort's queues.", "cohort", "resource")
COHORT_USAGE = _gauge(
    "torchq_cohort_usage", "What a cohort's queues use, as far as quotas limit it.", "cohort", "resource"
)
POOL_CAPACITY = _gauge("torchq_pool_capacity", "What all queues share. Without a limit there is no series.", "resource")
POOL_FRAGMENTS = _gauge(
    "torchq_pool_fragments",
    "What is free on nodes, but not to a pod that takes a whole node: of GPUs, or of cpu on nodes without GPUs.",
    "resource",
)
POOL_USAGE = _gauge("torchq_pool_usage", "Sum of the charges of all admitted jobs.", "resource")
WAITING_JOBS = _gauge(
    "torchq_waiting_jobs",
    "Waiting jobs by the code in their status. BehindOthers has those without a code: others of their queue go first.",
    "reason",
)
QUEUES = _gauge("torchq_queues", "Number of queues.")
UNNAMED_QUEUES = _gauge(
    "torchq_unnamed_queues", 'Number of the queues beyond the setting metrics_queues, which share the series queue="".'
)
WORKERS = _gauge(
    "torchq_workers", "Live worker processes with a right clock, also those of other layouts.", "version", "layout"
)
CYCLE_SECONDS = Metric(
    "torchq_cycle_duration_seconds",
    "Time of one round of picks, with its reading and its commits.",
    of="leader",
    buckets=REQUEST_BUCKETS,
)
REBUILDS = Metric(
    "torchq_rebuilds_total",
    "Rebuilds of the queues from the cluster, by what made them necessary.",
    of="leader",
    labels=("cause",),
)
REBUILD_SECONDS = Metric(
    "torchq_rebuild_duration_seconds",
    "Time of one rebuild.",
    of="leader",
    buckets=(0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0),
)
EPOCH = _gauge("torchq_epoch", "Epoch of the queues. Each rebuild raises it, whichever coordinator makes it.")
LAST_TURN = _gauge(
    "torchq_term_last_turn_timestamp_seconds",
    "When the leader's control loop last turned, in seconds since 1970. One that waits for Redis or the API server has "
    "turned now.",
)
METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
