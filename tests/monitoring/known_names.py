"""The metrics and labels that exist: in the catalogue, in kube-state-metrics and in Prometheus.

One rule: every name in a rule or a panel must be here. Otherwise the rule or panel would silently show nothing.
"""

from collections.abc import Iterator

from coordinator.metrics import catalogue
from tests.monitoring import promql

TARGET_LABELS = {"job", "instance", "namespace", "cluster"}
"""The labels that Prometheus gives to every target, or that its admin sets."""
_CRONJOB = {"namespace", "cronjob"}
FOREIGN = {
    "kube_cronjob_created": _CRONJOB,
    "kube_cronjob_status_last_schedule_time": _CRONJOB,
    "kube_cronjob_status_last_successful_time": _CRONJOB,
    "ALERTS": {"alertname", "alertstate", "severity"},
}


def labels() -> dict[str, set[str]]:
    """Return the labels of every series name."""
    known = dict(FOREIGN)
    for metric in catalogue.ALL:
        own = set(metric.labels)
        if metric.kind == "histogram":
            known |= {f"{metric.name}_bucket": own | {"le"}, f"{metric.name}_sum": own, f"{metric.name}_count": own}
        else:
            known[metric.name] = own
    return known


def unknown(expression: str) -> Iterator[str]:
    """Yield the names in an expression that do not exist."""
    known, found = labels(), promql.names(expression)
    for metric, used in found.metrics.items():
        if metric not in known:
            yield f"metric {metric}"
        else:
            yield from (f"label {label} of {metric}" for label in used - known[metric] - TARGET_LABELS)
    grouped = TARGET_LABELS.union(*(known.get(metric, set()) for metric in found.metrics))
    yield from (f"label {label} in {expression!r}" for label in found.groupings - grouped)
