"""The queries of the board, and the queries that return no data.

One rule: each query is sent as Grafana sends it, with every variable set to all values.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.monitoring.prometheus import Prometheus

BOARD = Path(__file__).parents[2] / "deploy/monitoring/board.json"
RATE_SECONDS = 60
_JOBS = "torchq-coordinator|torchq-worker|torchq-recorder"
_VARIABLES = {
    "$__rate_interval": f"{RATE_SECONDS}s",
    "$namespace": ".*",
    "$job": _JOBS,
    "$queue": ".*",
}


def load() -> dict[str, Any]:
    """Return the board."""
    found: dict[str, Any] = json.loads(BOARD.read_text())
    return found


def queries(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each query of the board with the title of its panel."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def expand(expression: str) -> str:
    """Return a query with the values of the variables."""
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"unknown variable in {expression}"
    return expression


def without_data(prometheus: Prometheus) -> list[str]:
    """Return the queries that return no number, with the titles of their panels."""
    return [
        f"{title}: {expression}"
        for title, expression in queries(load())
        if not any(each["value"][1] != "NaN" for each in prometheus.query(expand(expression)))
    ]
