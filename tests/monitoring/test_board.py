"""The board: it equals the output of its source, Grafana can read it, and its metrics exist."""

import json
from itertools import combinations
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from coordinator.metrics import catalogue
from deploy.monitoring import board as source
from tests.monitoring import board_queries, known_names, promql

BOARD = board_queries.load()
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
NOT_SHOWN = {
    "process_max_fds",
    "process_open_fds",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "torchq_dashboard_logins",
    "torchq_dashboard_servers_away",
    "torchq_epoch",
    "torchq_unnamed_queues",
}
ROWS = [
    "Overview",
    "Who waits, and why",
    "Share against weight",
    "Quotas and cohorts",
    "Waits",
    "Failures and restarts",
    "Reconciles and backlog",
    "Leader and Redis",
    "API server",
    "The history",
    "Processes",
]
every_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def lost(given: Any, kept: Any, path: str = "board") -> list[str]:
    """Return the parts of a document that are missing in another document."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [each for key, value in given.items() for each in lost(value, kept.get(key, "nothing"), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [
            each
            for number, (first, second) in enumerate(zip(given, kept, strict=True))
            for each in lost(first, second, f"{path}[{number}]")
        ]
    return [] if given == kept else [f"{path}: {given!r} became {kept!r}"]


def test_board_is_as_its_source_writes_it() -> None:
    assert board_queries.BOARD.read_text() == source.text(), "run: make manifests"


def test_grafana_reads_every_part_of_the_board() -> None:
    register_default_plugins()
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(BOARD)))
    assert lost(BOARD, read) == []


def test_a_part_that_grafana_does_not_know_is_found() -> None:
    read = json.loads(JSONEncoder().encode(Dashboard.from_json({**BOARD, "tittle": "torchq"})))
    assert lost({**BOARD, "tittle": "torchq"}, read) == ["board.tittle: 'torchq' became 'nothing'"]


def test_rows_are_in_the_order_of_questions() -> None:
    assert [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"] == ROWS


@every_panel
def test_a_panel_has_text_unit_legend_and_the_chosen_data_source(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    for part in (panel, *panel["targets"]):
        assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["legendFormat"] for target in panel["targets"])


@every_panel
def test_every_metric_and_label_of_a_panel_exists(panel: dict[str, Any]) -> None:
    expressions = [board_queries.expand(target["expr"]) for target in panel["targets"]]
    assert [each for expression in expressions for each in known_names.unknown(expression)] == []


@every_panel
def test_a_panel_shows_the_chosen_installation_only(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        for metric, labels in promql.names(target["expr"]).metrics.items():
            assert metric == "ALERTS" or {"namespace", "job"} <= labels


def test_every_metric_is_on_the_board() -> None:
    shown = {name for _, query in board_queries.queries(BOARD) for name in promql.names(query).metrics}
    shown = {name.removesuffix("_bucket") for name in shown}
    assert {metric.name for metric in catalogue.ALL} - shown == NOT_SHOWN


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])

    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= source.WIDTH
        return {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}

    places = [(panel["title"], cells(panel)) for panel in BOARD["panels"]]
    assert [(one, two) for (one, a), (two, b) in combinations(places, 2) if a & b] == []


def test_variables_are_data_source_installation_job_and_queues() -> None:
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert [*variables] == ["datasource", "namespace", "job", "queue"]
    assert variables["queue"]["multi"]
    assert variables["queue"]["includeAll"]
    for each in ("namespace", "job", "queue"):
        query = variables[each]["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
        assert list(known_names.unknown(board_queries.expand(query))) == []
