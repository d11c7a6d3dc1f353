"""The metrics of a dashboard in the cluster: who is logged in, and which servers do not answer."""

from collections.abc import Iterable

from coordinator.metrics.registry import Sample, number
from kube.process.meter import Metric

LOGINS = Metric("torchq_dashboard_logins", "Browsers that are logged in to a dashboard.", of="dashboard")
AWAY = Metric(
    "torchq_dashboard_servers_away",
    "Of the API server and the coordinators, those that did not answer when a dashboard last asked. It asks while "
    "somebody looks.",
    of="dashboard",
)
METRICS = (LOGINS, AWAY)


def samples(*, logins: int, away: int) -> Iterable[Sample]:
    """Yield the gauges of a dashboard."""
    yield number(LOGINS, logins)
    yield number(AWAY, away)
