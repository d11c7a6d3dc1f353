"""The metrics of the queues, their store and the dispatch of keys.

One rule: metrics that client-go's work queue also has carry the same names.
"""

from kube.process.meter import REQUEST_BUCKETS, Metric

WORK_QUEUE = "reconcile"
"""The name of the work queue of keys, as a label."""

REDIS_SECONDS = Metric(
    name="torchq_redis_request_duration_seconds",
    kind="histogram",
    help="Time until Redis answered a Lua script, with the repetitions after a lost connection.",
    labels=("script",),
    buckets=REQUEST_BUCKETS,
    of="queueing",
)
PICKS = Metric(
    name="torchq_picks_total", kind="counter", help="Jobs that the leader picked from the queues.", of="leader"
)
REFUSED_COMMITS = Metric(
    name="torchq_commits_refused_total",
    kind="counter",
    help="Rounds of picks that ended early because Redis refused a pick, by what had changed.",
    labels=("reason",),
    of="leader",
)
RECONCILES = Metric(
    name="torchq_reconcile_total",
    kind="counter",
    help="Reconciles by result: success, requeue (again after a time) or error (again after a back-off).",
    labels=("result",),
    of="worker",
)
RECONCILE_SECONDS = Metric(
    name="torchq_reconcile_time_seconds",
    kind="histogram",
    help="Time of one reconcile.",
    buckets=REQUEST_BUCKETS,
    of="worker",
)
WORK_DEPTH = Metric(
    name="workqueue_depth",
    kind="gauge",
    help="Keys of jobs that wait for a worker, in all of the installation.",
    labels=("name",),
    of="leader",
)
WORK_ADDS = Metric(
    name="workqueue_adds_total",
    kind="counter",
    help="Keys of jobs that workers took.",
    labels=("name",),
    of="worker",
)
WORK_WAIT_SECONDS = Metric(
    name="workqueue_queue_duration_seconds",
    kind="histogram",
    help="Time from the dispatch of a key until its reconcile began.",
    labels=("name",),
    buckets=REQUEST_BUCKETS,
    of="worker",
)
WORK_SECONDS = Metric(
    name="workqueue_work_duration_seconds",
    kind="histogram",
    help="Time that a worker spent on a key.",
    labels=("name",),
    buckets=REQUEST_BUCKETS,
    of="worker",
)
WORK_RETRIES = Metric(
    name="workqueue_retries_total",
    kind="counter",
    help="Keys that come back after a back-off because their reconcile failed.",
    labels=("name",),
    of="worker",
)
UNFINISHED_SECONDS = Metric(
    name="workqueue_unfinished_work_seconds",
    kind="gauge",
    help="Sum of the times for which the reconciles that run now have run. A sum that only rises shows hung ones.",
    labels=("name",),
    of="worker",
)
CLOCK_WRONG = Metric(
    name="torchq_worker_clock_wrong",
    kind="gauge",
    help="Whether this worker takes no work because the clock of its machine is wrong: 1 or 0.",
    of="worker",
    merge="most",
)
METRICS = tuple(each for each in vars().values() if isinstance(each, Metric))
