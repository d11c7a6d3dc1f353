"""The body of a report by the progress protocol of Kubeflow Trainer (its KEP-2779), and the report in it.

One rule: pure. For any bytes, the result is a report within its bounds, None for a body without a status, or
InvalidReport with the field and the reason.

    {"trainerStatus": {"progressPercentage": 40, "estimatedRemainingSeconds": 90, "lastUpdatedTime": "...",
                       "metrics": [{"name": "loss", "value": "0.25"}]}}

The metrics that the callback of Hugging Face transformers names `loss`, `current_step` and `total_steps` have fields of
their own in a report. All others are gauges. The time in the body is not used: it is the time of a clock of the pod.
"""

import math
import re
from typing import Any

from coordinator.reports.body import LONGEST_TEXT, MOST_GAUGES, InvalidReport, load, whole
from coordinator.reports.report_values import Progress, Reading, Report
from crds.integers import LARGEST

STATUS = "trainerStatus"
STEP, STEPS, LOSS = "current_step", "total_steps", "loss"
"""The names of metrics that are no gauges."""
COMPLETE = 100
_NOT_OF_GAUGES = re.compile(r"[^A-Za-z0-9_]")
_LONGEST_GAUGE = 63


def parse(body: bytes, pod: str) -> Report | None:
    """Return the report of a pod in a body; None if the body has no status. Raises InvalidReport."""
    fields = load(body)
    status = fields.get(STATUS) if isinstance(fields, dict) else fields
    if status is None:
        return None
    if not isinstance(status, dict):
        raise InvalidReport(f"{STATUS}: must be an object")
    percent = whole(status, "progressPercentage", COMPLETE)
    metrics = _metrics(status.get("metrics"))
    gauges = {_gauge_name(name): value for name, value in metrics.items() if name not in (STEP, STEPS, LOSS)}
    return Report(
        pod=pod,
        step=_count(metrics.get(STEP)),
        loss=metrics.get(LOSS),
        gauges=dict(list(gauges.items())[:MOST_GAUGES]),
        last=percent == COMPLETE,
        progress=Progress(
            percent=percent,
            remaining_seconds=whole(status, "estimatedRemainingSeconds"),
            steps=_count(metrics.get(STEPS)),
        ),
    )


def _metrics(entries: Any) -> dict[str, Reading]:
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise InvalidReport("metrics: must be a list")
    metrics: dict[str, Reading] = {}
    for entry in entries:
        name, value = (entry.get("name"), entry.get("value")) if isinstance(entry, dict) else (None, None)
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise InvalidReport("metrics: each needs a name and a value, which are texts")
        metrics[name] = _reading(value)
    return metrics


def _reading(text: str) -> Reading:
    """Return a value as a number, or its text if it is no finite number."""
    try:
        number = float(text)
    except ValueError:
        return text[:LONGEST_TEXT]
    return number if math.isfinite(number) else text[:LONGEST_TEXT]


def _count(value: Reading | None) -> int | None:
    """Return a number of steps; None for what is none."""
    return int(value) if isinstance(value, float) and value.is_integer() and 0 <= value <= LARGEST else None


def _gauge_name(name: str) -> str:
    """Return the name of a metric as a gauge may have it: `eval/loss` is `eval_loss`."""
    plain = _NOT_OF_GAUGES.sub("_", name)
    return f"{'_' if plain[0].isdigit() else ''}{plain}"[:_LONGEST_GAUGE]
