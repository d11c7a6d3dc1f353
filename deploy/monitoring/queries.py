"""The form of a panel of the dashboard, and the usual forms of its queries.

One rule: every query names its target by the variables `namespace` and `job`, and its queues by `queue`. Figures of
queues come from the leader. The newest samples may hold two leaders, so these figures are the maximum over the targets.
"""

from dataclasses import dataclass

T = 'namespace=~"$namespace", job=~"$job"'
"""The selector of torchq's targets."""
Q = T + ', queue=~"$queue"'
"""The same, for the chosen queues."""
RATE = "[$__rate_interval]"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: what the panel shows, and the PromQL queries with their legends."""

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    stacked: bool = False


def quantile(part: float, metric: str, by: str, target: str = T) -> str:
    """Return the query of a quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({part}, sum by ({labels}) (rate({metric}_bucket{{{target}}}{RATE})))"


def rate(metric: str, by: str, target: str = T) -> str:
    """Return the query of a counter's rate."""
    return f"sum by ({by}) (rate({metric}{{{target}}}{RATE}))"


def newest(metric: str, by: str, target: str = T) -> str:
    """Return the query of a gauge of the leader."""
    return f"max by ({by}) ({metric}{{{target}}})"


def total(metric: str, by: str, target: str = T) -> str:
    """Return the query of the sum of a gauge of the leader over all installations that are chosen."""
    return f"sum({newest(metric, f'namespace, {by}', target)})"


def of_each(metric: str) -> tuple[tuple[str, str], ...]:
    """Return the query of a gauge of each process, with its legend."""
    return ((f"{metric}{{{T}}}", "{{instance}}"),)
