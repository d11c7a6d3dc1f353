"""All metrics of torchq.

One rule: a metric that is not listed here is not on /metrics, and docs/metrics.md is made from this list.
"""

from coordinator.metrics import dashboard_metrics, leader_metrics, process_metrics, recorder_metrics
from kube.process import request_metrics
from queues import metrics as queue_metrics
from reconcilers import metrics as job_metrics

GROUPS = {
    "Queues and the leader": leader_metrics.METRICS,
    "Jobs": job_metrics.METRICS,
    "Picks, work and Redis": queue_metrics.METRICS,
    "The API server": request_metrics.METRICS,
    "The history": recorder_metrics.METRICS,
    "The dashboard": dashboard_metrics.METRICS,
    "Processes": process_metrics.METRICS,
}
"""The metrics under the headings of the documentation."""
ALL = tuple(metric for group in GROUPS.values() for metric in group)
BY_NAME = {metric.name: metric for metric in ALL}
