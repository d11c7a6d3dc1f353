"""The metrics of the events of jobs.

One rule: a fact is counted once, after the API server has taken the write that makes it true (`reconcilers.facts`).
"""

from kube.process.meter import Metric

WAIT_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0, 86_400.0)
START_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
RUN_BUCKETS = (10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)

ADMISSIONS = Metric("torchq_admissions_total", "Jobs that were admitted from a queue.", of="worker", labels=("queue",))
FINISHED = Metric(
    "torchq_jobs_finished_total",
    "Jobs that reached their end, by result: succeeded or failed.",
    of="worker",
    labels=("queue", "result"),
)
SENT_BACK = Metric(
    "torchq_jobs_sent_back_total",
    "Jobs that gave back their admission and wait again, by the reason in their status.",
    of="worker",
    labels=("queue", "reason"),
)
RESTARTS = Metric(
    "torchq_job_restarts_total",
    "Failures after which pods were restarted or replaced: Retryable (charged to the job) or Disruption (not).",
    of="worker",
    labels=("queue", "cause"),
)
WAIT_SECONDS = Metric(
    "torchq_admission_wait_time_seconds",
    "Time from the submission of a job, or from when it last began to wait, to its admission.",
    of="worker",
    labels=("queue",),
    buckets=WAIT_BUCKETS,
)
UNTIL_RUNNING_SECONDS = Metric(
    "torchq_admitted_until_running_seconds",
    "Time from the admission of a job until every task first had its minimum of running pods.",
    of="worker",
    labels=("queue",),
    buckets=START_BUCKETS,
)
EXECUTION_SECONDS = Metric(
    "torchq_job_execution_seconds",
    "Time from the last admission of a job to its end, with its restarts.",
    of="worker",
    labels=("queue",),
    buckets=RUN_BUCKETS,
)
SUBMIT_TO_PODS_SECONDS = Metric(
    "torchq_submit_to_pods_seconds",
    "Time from the submission of a job until its first pods existed, for jobs that never waited a second time.",
    of="worker",
    buckets=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0),
)
HELD_SECONDS = Metric(
    "torchq_held_stage_seconds",
    "Time of a stage in which a job holds room and does not run. Before its admission: dispatch (picked, until "
    "its key is leased), handover (until a worker begins), admission (until that is written). After its end: "
    "reconcile (the leader sees that its pods have ended, until it sees that the job has, or the reverse), release "
    "(until the charge is freed). No stage compares the clocks of two machines, so none is negative.",
    of="queueing",
    labels=("stage",),
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
METRICS = tuple(each for each in vars().values() if isinstance(each, Metric))
