"""A benchmark's result as JSON and as text.

One rule: options, figures and machine are reported together, since a figure without its conditions means nothing.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Figures = dict[str, Any]
"""The results of a benchmark: numbers by name, with the unit at the end of the name."""


def report(name: str, options: Any, figures: Figures, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of one run; `options` is the benchmark's frozen dataclass."""
    return {"benchmark": name, **dataclasses.asdict(options), **figures, "machine": dict(machine)}


def text(result: Mapping[str, Any]) -> str:
    """Return a result as text: a line per figure, or a table, and the machine in the last line."""
    machine = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    rows = {name: value for name, value in result.items() if name not in ("benchmark", "machine")}
    width = max(map(len, rows))
    lines = [line for name, value in rows.items() for line in _lines(name, value, width)]
    return "\n".join([result["benchmark"], *lines, f"  on {machine}"])


def _lines(name: str, value: Any, width: int) -> list[str]:
    """Return the line of a figure; of figures by name, each of which has the same parts, the lines of a table."""
    parts = list(value.values()) if isinstance(value, dict) else []
    if not parts or not all(isinstance(part, dict) and part.keys() == parts[0].keys() for part in parts):
        return [f"  {name.ljust(width)}  {_format(value)}"]
    rows = [(name, parts[0]), *((f"  {row}", map(_format, part.values())) for row, part in value.items())]
    return [f"  {first.ljust(width)}" + "".join(f"  {cell:>8}" for cell in cells) for first, cells in rows]


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 95th and 99th percentile and the maximum of some times; nothing if there are none."""
    if len(seconds) < 2:
        return {name: _ms(time) for time in seconds for name in ("p50", "p95", "p99", "max")}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {
        "p50": _ms(statistics.median(seconds)),
        "p95": _ms(cuts[94]),
        "p99": _ms(cuts[98]),
        "max": _ms(max(seconds)),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def _format(value: Any) -> str:
    match value:
        case dict():
            return "  ".join(f"{name} {_format(item)}" for name, item in value.items())
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        case _:
            return str(value)
