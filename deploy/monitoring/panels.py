"""The rows and panels of torchq's Grafana dashboard, as `board.py` writes them.

One rule: a panel shows one thing, in one unit, and its text explains how to read the panel.
"""

from deploy.monitoring.history_panels import HISTORY
from deploy.monitoring.queries import RATE, Panel, Q, T, newest, of_each, quantile, rate, total

LEADER = f'leader_election_master_status{{name="torchq-coordinator", {T}}}'
WORK = f'name="reconcile", {T}'
OVERVIEW = (
    Panel(
        title="Coordinators that lead",
        text="1 for each installation. 0: no job is admitted.",
        queries=((f"sum({LEADER})", ""),),
        kind="stat",
        width=4,
    ),
    Panel(
        title="Processes without Redis",
        text="Coordinators and workers that reach no usable Redis.",
        queries=((f"sum(1 - torchq_redis_up{{{T}}})", ""),),
        kind="stat",
        width=4,
    ),
    Panel(
        title="Workers",
        text="Worker processes that are registered with the leader.",
        queries=((total("torchq_workers", "version, layout"), ""),),
        kind="stat",
        width=4,
    ),
    Panel(
        title="Queues",
        text="Beyond the setting metrics_queues, the figures of all queues are one series without a name.",
        queries=((f"sum(max by (namespace) (torchq_queues{{{T}}}))", ""),),
        kind="stat",
        width=4,
    ),
    Panel(
        title="Jobs that wait",
        text="In the chosen queues.",
        queries=((total("torchq_pending_jobs", "queue, status", Q), ""),),
        kind="stat",
        width=4,
    ),
    Panel(
        title="Alerts that fire",
        text="Alerts of torchq, if this datasource evaluates them.",
        queries=(('count(ALERTS{alertname=~"Torchq.+", alertstate="firing"}) or vector(0)', ""),),
        kind="stat",
        width=4,
    ),
)
WAITING = (
    Panel(
        title="Jobs that wait",
        text="inadmissible: no room in another queue would help these jobs, such as those of a paused queue.",
        queries=((newest("torchq_pending_jobs", "queue, status", Q), "{{queue}} {{status}}"),),
        stacked=True,
    ),
    Panel(
        title="Why jobs wait",
        text="The reasons in the statuses of jobs (docs/conditions.md). `torchq job why` has the numbers of one job.",
        queries=((newest("torchq_waiting_jobs", "reason"), "{{reason}}"),),
        stacked=True,
    ),
    Panel(
        title="Oldest wait",
        text="How long the job has waited that has waited longest.",
        queries=((newest("torchq_queue_oldest_wait_seconds", "queue", Q), "{{queue}}"),),
        unit="s",
    ),
)
SHARES = (
    Panel(
        title="Share and target",
        text="The part of what queues use, and the part that the weight gives among the queues that have jobs.",
        queries=(
            (newest("torchq_queue_share_ratio", "queue", Q), "{{queue}}"),
            (newest("torchq_queue_target_share_ratio", "queue", Q), "{{queue}} target"),
        ),
        unit="percentunit",
    ),
    Panel(
        title="Lag",
        text="How much cost a queue is behind its share, or, below 0, ahead of it.",
        queries=((newest("torchq_queue_lag", "queue", Q), "{{queue}}"),),
    ),
    Panel(
        title="Queues",
        text="The settings of the queues and their figures now.",
        queries=(
            (f"max by (queue, cohort, ordering, stop_policy) (torchq_queue_info{{{Q}}})", ""),
            (newest("torchq_queue_weight", "queue", Q), "weight"),
            (newest("torchq_admitted_jobs", "queue", Q), "admitted"),
        ),
        kind="table",
    ),
)
QUOTAS = (
    Panel(
        title="Usage of quotas",
        text="Above 100 % a queue borrows from its cohort, or its quota was lowered.",
        queries=(
            (
                f"{newest('torchq_queue_usage', 'queue, resource', Q)} / "
                f"{newest('torchq_queue_quota', 'queue, resource', Q)}",
                "{{queue}} {{resource}}",
            ),
        ),
        unit="percentunit",
    ),
    Panel(
        title="Usage of cohorts",
        text="The quotas of a cohort are the sum of its queues' quotas.",
        queries=(
            (
                f"{newest('torchq_cohort_usage', 'cohort, resource')} / "
                f"{newest('torchq_cohort_quota', 'cohort, resource')}",
                "{{cohort}} {{resource}}",
            ),
        ),
        unit="percentunit",
    ),
    Panel(
        title="Usage of the pool",
        text="What admitted jobs hold of what all nodes have, and what is free, but not to a pod of a whole node.",
        queries=(
            (
                f"{newest('torchq_pool_usage', 'resource')} / {newest('torchq_pool_capacity', 'resource')}",
                "{{resource}}",
            ),
            (
                f"{newest('torchq_pool_fragments', 'resource')} / {newest('torchq_pool_capacity', 'resource')}",
                "{{resource}} in fragments",
            ),
        ),
        unit="percentunit",
    ),
    Panel(
        title="Quotas and usage now",
        text="In cores, bytes and pieces.",
        queries=(
            (newest("torchq_queue_usage", "queue, resource", Q), "usage"),
            (newest("torchq_queue_quota", "queue, resource", Q), "quota"),
            (newest("torchq_queue_borrowing_limit", "queue, resource", Q), "borrowing limit"),
        ),
        kind="table",
        width=24,
    ),
)
WAITS = (
    Panel(
        title="Waits until the admission",
        text="Jobs that were admitted, by how long they had waited.",
        queries=((f"sum by (le) (increase(torchq_admission_wait_time_seconds_bucket{{{Q}}}{RATE}))", "{{le}}"),),
        kind="heatmap",
        unit="s",
        width=12,
    ),
    Panel(
        title="From the admission until the job runs",
        text="Long times are those of images, nodes and gang schedulers.",
        queries=((f"sum by (le) (increase(torchq_admitted_until_running_seconds_bucket{{{Q}}}{RATE}))", "{{le}}"),),
        kind="heatmap",
        unit="s",
        width=12,
    ),
    Panel(
        title="Waits by queue, 95 %",
        text="95 % of the jobs of a queue waited for less.",
        queries=((quantile(0.95, "torchq_admission_wait_time_seconds", "queue", Q), "{{queue}}"),),
        unit="s",
        width=6,
    ),
    Panel(
        title="From the submission to the pods",
        text="For jobs that never waited a second time.",
        queries=(
            (quantile(0.5, "torchq_submit_to_pods_seconds", ""), "50 %"),
            (quantile(0.95, "torchq_submit_to_pods_seconds", ""), "95 %"),
        ),
        unit="s",
        width=6,
    ),
    Panel(
        title="How long jobs run, median",
        text="From the last admission of a job to its end.",
        queries=((quantile(0.5, "torchq_job_execution_seconds", "queue", Q), "{{queue}}"),),
        unit="s",
        width=6,
    ),
    Panel(
        title="How long room is held idle, 95 %",
        text="By stage: before a job has its admission, and after its end.",
        queries=((quantile(0.95, "torchq_held_stage_seconds", "stage"), "{{stage}}"),),
        unit="s",
        width=6,
    ),
)
FAILURES = (
    Panel(
        title="Admissions",
        text="Jobs that were admitted.",
        queries=((rate("torchq_admissions_total", "queue", Q), "{{queue}}"),),
        unit="ops",
        width=6,
    ),
    Panel(
        title="Jobs that ended",
        text="By queue and result.",
        queries=((rate("torchq_jobs_finished_total", "queue, result", Q), "{{queue}} {{result}}"),),
        unit="ops",
        width=6,
    ),
    Panel(
        title="Jobs that were sent back",
        text="They were admitted, did not run, and wait again.",
        queries=((rate("torchq_jobs_sent_back_total", "queue, reason", Q), "{{queue}} {{reason}}"),),
        unit="ops",
        width=6,
    ),
    Panel(
        title="Restarts",
        text="By queue and cause. Disruptions are not the job's fault.",
        queries=((rate("torchq_job_restarts_total", "queue, cause", Q), "{{queue}} {{cause}}"),),
        unit="ops",
        width=6,
    ),
)
RECONCILES = (
    Panel(
        title="Jobs that wait for a worker",
        text="A depth that only rises is work that the workers cannot do.",
        queries=((f"max by (namespace) (workqueue_depth{{{WORK}}})", "{{namespace}}"),),
    ),
    Panel(
        title="Reconciles",
        text="By result. requeue: again after a time. error: again after a back-off.",
        queries=(
            (rate("torchq_reconcile_total", "result"), "{{result}}"),
            (f"sum(rate(workqueue_adds_total{{{WORK}}}{RATE}))", "taken by workers"),
            (f"sum(rate(workqueue_retries_total{{{WORK}}}{RATE}))", "retries"),
        ),
        unit="ops",
    ),
    Panel(
        title="Time of reconciles, 99 %",
        text="Of one reconcile, of the wait before it, and of a worker's work on one key.",
        queries=(
            (quantile(0.99, "torchq_reconcile_time_seconds", ""), "reconcile"),
            (quantile(0.99, "workqueue_queue_duration_seconds", "", WORK), "wait"),
            (quantile(0.99, "workqueue_work_duration_seconds", "", WORK), "work"),
        ),
        unit="s",
    ),
    Panel(
        title="Unfinished work",
        text="The sum of the times of the reconciles that run now. A sum that only rises shows hung ones.",
        queries=((f"sum by (instance) (workqueue_unfinished_work_seconds{{{WORK}}})", "{{instance}}"),),
        unit="s",
        width=12,
    ),
    Panel(
        title="Workers by version",
        text="Workers of another layout than the leader's take no work, and none does whose clock is wrong.",
        queries=(
            (newest("torchq_workers", "version, layout"), "{{version}}, layout {{layout}}"),
            (f"sum(torchq_worker_clock_wrong{{{T}}})", "processes with a wrong clock"),
        ),
        width=12,
    ),
)
LEADERSHIP = (
    Panel(
        title="Who leads",
        text="1: this coordinator leads. 0: it stands by.",
        queries=((f"max by (instance) ({LEADER})", "{{instance}}"),),
        width=6,
    ),
    Panel(
        title="Since the last turn of the leader",
        text="The control loop turns several times in a second.",
        queries=((f"time() - max by (namespace) (torchq_term_last_turn_timestamp_seconds{{{T}}})", "{{namespace}}"),),
        unit="s",
        width=6,
    ),
    Panel(
        title="Picks, and rounds that Redis refused",
        text="A refused round is done again with the newest state.",
        queries=(
            (f"sum(rate(torchq_picks_total{{{T}}}{RATE}))", "picks"),
            (f"{rate('torchq_commits_refused_total', 'reason')} or vector(0)", "refused: {{reason}}"),
        ),
        unit="ops",
        width=6,
    ),
    Panel(
        title="Time of a cycle",
        text="A cycle reads the queues, picks and commits.",
        queries=tuple(
            (quantile(part, "torchq_cycle_duration_seconds", ""), f"{part * 100:.0f} %") for part in (0.5, 0.99)
        ),
        unit="s",
        width=6,
    ),
    Panel(
        title="Rebuilds",
        text="Each term begins with a rebuild of the index in Redis from the cluster.",
        queries=((f"sum by (cause) (increase(torchq_rebuilds_total{{{T}}}{RATE}))", "{{cause}}"),),
        width=6,
    ),
    Panel(
        title="Time of a rebuild, 95 %",
        text="No job is admitted meanwhile.",
        queries=((quantile(0.95, "torchq_rebuild_duration_seconds", ""), "95 %"),),
        unit="s",
        width=6,
    ),
    Panel(
        title="Redis",
        text="1: this process has a usable Redis; for coordinators, one that can hold the queues.",
        queries=(
            (f"min by (instance) (torchq_redis_up{{{T}}})", "{{instance}}"),
            (f"min by (instance) (torchq_redis_fit{{{T}}})", "{{instance}}: fit"),
        ),
        width=6,
    ),
    Panel(
        title="Time of requests to Redis, 99 %",
        text="By Lua script.",
        queries=((quantile(0.99, "torchq_redis_request_duration_seconds", "script"), "{{script}}"),),
        unit="s",
        width=6,
    ),
)
API_SERVER = (
    Panel(
        title="Requests",
        text="By status. <error>: no answer.",
        queries=((rate("rest_client_requests_total", "code"), "{{code}}"),),
        unit="reqps",
        width=6,
    ),
    Panel(
        title="Requests by method",
        text="Each attempt counts.",
        queries=((rate("rest_client_requests_total", "method"), "{{method}}"),),
        unit="reqps",
        width=6,
    ),
    Panel(
        title="Time of requests, 99 %",
        text="Until the answer; for watches until they began.",
        queries=((quantile(0.99, "rest_client_request_duration_seconds", "verb"), "{{verb}}"),),
        unit="s",
        width=6,
    ),
    Panel(
        title="Watches that began again",
        text="After an error.",
        queries=((rate("torchq_watch_restarts_total", "resource"), "{{resource}}"),),
        unit="ops",
        width=6,
    ),
)
PROCESSES = (
    Panel(
        title="CPU",
        text="Cores that each process uses.",
        queries=((f"rate(process_cpu_seconds_total{{{T}}}{RATE})", "{{instance}}"),),
    ),
    Panel(
        title="Memory",
        text="Resident memory of each process.",
        queries=of_each("process_resident_memory_bytes"),
        unit="bytes",
    ),
    Panel(
        title="Versions",
        text="Version and layout of each process.",
        queries=((f"sum by (version, layout) (torchq_build_info{{{T}}})", "{{version}}, layout {{layout}}"),),
    ),
)
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Overview", OVERVIEW),
    ("Who waits, and why", WAITING),
    ("Share against weight", SHARES),
    ("Quotas and cohorts", QUOTAS),
    ("Waits", WAITS),
    ("Failures and restarts", FAILURES),
    ("Reconciles and backlog", RECONCILES),
    ("Leader and Redis", LEADERSHIP),
    ("API server", API_SERVER),
    ("The history", HISTORY),
    ("Processes", PROCESSES),
)
