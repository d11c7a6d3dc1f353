"""Writes board.json, the Grafana dashboard of torchq: `python -m deploy.monitoring.board`.

One rule: this module knows how Grafana describes a panel; `panels.py` says what the panels show.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.monitoring.panels import ROWS
from deploy.monitoring.queries import Panel, T

FILE = Path(__file__).with_name("board.json")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
HEIGHT = 8
STAT_HEIGHT = 4
LETTERS = "ABCDEF"


def board() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    return {
        "uid": "torchq",
        "title": "torchq",
        "description": "Queues, jobs and processes of torchq. The alerts are explained in docs/alerts.md.",
        "tags": ["torchq"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }


def text() -> str:
    """Return the content of board.json."""
    return json.dumps(board(), indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    """Return the variables. A static configuration has no label `namespace`, so all of them are any or none."""
    return [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
        },
        _choice("namespace", "Namespace", "label_values(torchq_build_info, namespace)", ".*"),
        _choice("job", "Scrape job", 'label_values(torchq_build_info{namespace=~"$namespace"}, job)', ""),
        _choice("queue", "Queue", f"label_values(torchq_queue_weight{{{T}}}, queue)", ".*"),
    ]


def _choice(name: str, label: str, query: str, every: str) -> dict[str, Any]:
    """Return a variable with several values; `every` is the value that stands for all values, or empty for the list of
    all values.
    """
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        **({"allValue": every} if every else {}),
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > WIDTH:
                left, top = 0, top + height
            height = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left += panel.width
        top += height


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "transformations": _transformations(panel),
        "targets": [_target(panel, letter, *query) for letter, query in zip(LETTERS, panel.queries, strict=False)],
    }


def _target(panel: Panel, letter: str, expression: str, legend: str) -> dict[str, Any]:
    is_now = panel.kind in ("stat", "table")
    return {
        "refId": letter,
        "datasource": DATASOURCE,
        "expr": expression,
        "legendFormat": legend or "__auto",
        "instant": is_now,
        "range": not is_now,
        "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none"}
        fill = 20 if panel.stacked else 0
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": fill, "showPoints": "never", "stacking": stacking}
        if panel.unit != "short":
            defaults["min"] = 0
    return defaults


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "timeseries":
            legend = {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull"]}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
        case "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "graphMode": "none"}
        case "heatmap":
            return {
                "calculate": False,
                "cellGap": 1,
                "color": {"mode": "scheme", "scheme": "Blues", "steps": 64},
                "legend": {"show": True},
                "yAxis": {"unit": panel.unit},
            }
    return {"showHeader": True}


def _transformations(panel: Panel) -> list[dict[str, Any]]:
    """Return the transformation that makes one table of several queries: their values become columns that have their
    legends.
    """
    if panel.kind != "table":
        return []
    names = {f"Value #{letter}": legend for letter, (_, legend) in zip(LETTERS, panel.queries, strict=False) if legend}
    hidden = {"Time": True} | {
        f"Value #{letter}": True for letter, (_, legend) in zip(LETTERS, panel.queries, strict=False) if not legend
    }
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names, "indexByName": {}}},
    ]


if __name__ == "__main__":
    FILE.write_text(text())
