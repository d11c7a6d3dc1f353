"""The comparison of the queues' metrics in Prometheus with the output of `torchq queue list -o json`.

One rule: both are read from outside, and amounts are compared as numbers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.monitoring.prometheus import Prometheus

WAIT_SECONDS = 4.0
"""By how much the ages of the oldest jobs may differ: both were read at different moments."""
_UNITS = {"m": 1e-3, "k": 1e3, "Ki": 2.0**10, "M": 1e6, "Mi": 2.0**20, "G": 1e9, "Gi": 2.0**30}


def differences(prometheus: Prometheus, queues: list[dict[str, Any]]) -> list[str]:
    """Return how the metrics differ from the documents of the queues."""
    wrong = []
    names = {queue["metadata"]["name"] for queue in queues}
    labelled = {each["metric"]["queue"] for each in prometheus.query("torchq_queue_weight")}
    if names != labelled:
        wrong.append(f"queues: {sorted(labelled)} instead of {sorted(names)}")
    for queue in queues:
        name = queue["metadata"]["name"]
        for metric, labels, shown, slack in _figures(queue):
            selector = ", ".join(f'{label}="{value}"' for label, value in {"queue": name, **labels}.items())
            found = prometheus.value(f"max({metric}{{{selector}}})")
            if found is None or abs(found - shown) > slack:
                wrong.append(f"{metric}{{{selector}}}: {found} instead of {shown}")
    return wrong


def _figures(queue: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, str], float, float]]:
    """Yield each figure of a queue as metric, labels, value, and the tolerated difference."""
    spec, status = queue["spec"], queue["status"]
    yield "torchq_queue_weight", {}, spec["weight"], 0
    yield "torchq_pending_jobs", {"status": "active"}, status["pending"], 0
    yield "torchq_admitted_jobs", {}, status["admitted"], 0
    yield "torchq_queue_share_ratio", {}, _percent(status["share"]), 0.01
    yield "torchq_queue_target_share_ratio", {}, _percent(status["target"]), 0.01
    if status["lag"] is not None:
        yield "torchq_queue_lag", {}, status["lag"], 0.001
    yield "torchq_queue_oldest_wait_seconds", {}, status["oldestWaitSeconds"] or 0.0, WAIT_SECONDS
    labels = {"cohort": spec.get("cohort", ""), "stop_policy": spec.get("stopPolicy", "None")}
    yield "torchq_queue_info", labels, 1, 0
    amounts = {
        "torchq_queue_usage": status["usage"],
        "torchq_queue_quota": spec.get("quota") or {},
        "torchq_queue_borrowing_limit": spec.get("borrowingLimit") or {},
    }
    for metric, quantities in amounts.items():
        for resource, quantity in quantities.items():
            yield metric, {"resource": resource}, _number(quantity), 0


def _percent(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def _number(quantity: str | int) -> float:
    text = str(quantity)
    unit = next((unit for unit in sorted(_UNITS, key=len, reverse=True) if text.endswith(unit)), "")
    return float(text.removesuffix(unit)) * _UNITS.get(unit, 1.0)
