"""The metrics of the queues, their store and the dispatch of keys.

One rule: metrics that client-go's work queue also has carry the same names.
"""

from kube.process.meter import REQUEST_BUCKETS, Metric

WORK_QUEUE = "reconcile"
"""The name of the work queue of keys, as a label."""

REDIS_SECONDS = Metric(
    "torchq_redis_request_duration_seconds",
    "Time until Redis answered a Lua script, with the repetitions after a lost connection.",
    of="queueing",
    labels=("script",),
    buckets=REQUEST_BUCKETS,
)
PICKS = Metric("torchq_picks_total", "Jobs that the leader picked from the queues.", of="leader")
REFUSED_COMMITS = Metric(
    "torchq_commits_refused_total",
    "Rounds of picks that ended early because Redis refused a pick, by what had changed.",
    of="leader",
    labels=("reason",),
)
RECONCILES = Metric(
    "torchq_reconcile_total",
    "Reconciles by result: success, requeue (again after a time) or error (again after a back-off).",
    of="worker",
    labels=("result",),
)
RECONCILE_SECONDS = Metric(
    "torchq_reconcile_time_seconds", "Time of one reconcile.", of="worker", buckets=REQUEST_BUCKETS
)
WORK_DEPTH = Metric(
    "workqueue_depth", "Keys of jobs that wait for a worker, in all of the installation.", of="leader", labels=("name",)
)
WORK_ADDS = Metric("workqueue_adds_total", "Keys of jobs that workers took.", of="worker", labels=("name",))
WORK_WAIT_SECONDS = Metric(
    "workqueue_queue_duration_seconds",
    "Time from the dispatch of a key until its reconcile began.",
    of="worker",
    labels=("name",),
    buckets=REQUEST_BUCKETS,
)
WORK_SECONDS = Metric(
    "workqueue_work_duration_seconds",
    "Time that a worker spent on a key.",
    of="worker",
    labels=("name",),
    buckets=REQUEST_BUCKETS,
)
WORK_RETRIES = Metric(
    "workqueue_retries_total",
    "Keys that come back after a back-off because their reconcile failed.",
    of="worker",
    labels=("name",),
)
UNFINISHED_SECONDS = Metric(
    "workqueue_unfinished_work_seconds",
    "Sum of the times for which the reconciles that run now have run. A sum that only rises shows hung ones.",
    of="worker",
    labels=("name",),
)
CLOCK_WRONG = Metric(
    "torchq_worker_clock_wrong",
    "Whether this worker takes no work because the clock of its machine is wrong: 1 or 0.",
    of="worker",
    merge="most",
)
METRICS = tuple(each for each in vars().values() if isinstance(each, Metric))
