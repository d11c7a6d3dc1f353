"""The body of a report, as an untrusted client sends it, and the report in it.

One rule: pure. For any bytes, the result is a report within its bounds or InvalidReport with the field and the
reason. Fields that are not known are ignored, because the training code may be newer than the coordinator.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

from coordinator.reports.report_values import Reading, Report
from crds.integers import LARGEST

MOST_BYTES = 8 * 1024
"""The most bytes of a report."""
MOST_GAUGES = 16
LONGEST_NAME = 253
LONGEST_TEXT = 32
"""The most characters of a value that is no number."""
_GAUGE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class InvalidReport(ValueError):
    """The body is no report; the message says why."""


def parse(body: bytes) -> Report:
    """Return the report in a body. Raises InvalidReport."""
    fields = load(body)
    if not isinstance(fields, dict):
        raise InvalidReport("the body is not a JSON object")
    pod, step = fields.get("pod"), whole(fields, "step")
    if not isinstance(pod, str) or not 0 < len(pod) <= LONGEST_NAME:
        raise InvalidReport("pod: must be the name of the pod")
    if step is None:
        raise InvalidReport("step: is missing")
    samples = _reading(fields, "samplesPerSecond")
    if isinstance(samples, float) and samples < 0:
        raise InvalidReport("samplesPerSecond: must not be negative")
    return Report(
        pod=pod,
        step=step,
        samples_per_second=samples,
        loss=_reading(fields, "loss"),
        gauges=_gauges(fields.get("gauges")),
        checkpoint=whole(fields, "checkpoint"),
        last=_flag(fields, "last"),
    )


def load(body: bytes) -> Any:
    """Return the JSON value of a body. Raises InvalidReport."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InvalidReport("the body is not JSON (NaN and Infinity are not)") from None


def whole(fields: Mapping[str, Any], name: str, most: int = LARGEST) -> int | None:
    """Return a whole number; None if it is missing. Raises InvalidReport."""
    value = fields.get(name)
    if value is None or (type(value) is int and 0 <= value <= most):
        return value
    raise InvalidReport(f"{name}: must be a whole number from 0 to {most}")


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is None or type(value) is bool:
        return bool(value)
    raise InvalidReport(f"{name}: must be true or false")


def _reading(fields: dict[str, Any], name: str) -> Reading | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is str and len(value) <= LONGEST_TEXT:
        return value
    if type(value) not in (int, float) or not math.isfinite(value):
        raise InvalidReport(f"{name}: must be a finite number, or text of at most {LONGEST_TEXT} characters")
    return float(value)


def _gauges(value: Any) -> dict[str, Reading]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MOST_GAUGES:
        raise InvalidReport(f"gauges: must be an object with at most {MOST_GAUGES} names")
    if not all(_GAUGE.fullmatch(name) for name in value):
        raise InvalidReport("gauges: a name has at most 63 letters, digits and _, and begins with no digit")
    readings = ((name, _reading(value, name)) for name in value)
    return {name: reading for name, reading in readings if reading is not None}
