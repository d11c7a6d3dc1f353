"""docs/conditions.md and docs/resizing.md agree with the code: phases, reasons, events, fields and their changes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from coordinator.routing import eligibility
from crds.schema.change_rules import TABLE
from crds.torchjob import conditions
from crds.torchjob.conditions import NEXT, TRUE_IN
from crds.torchjob.jobspec import TorchElasticPolicy
from crds.torchjob.status import Resized, Scaling, Target
from queues.picking import explain
from reconcilers.plan import status

ROOT = Path(eligibility.__file__).parents[2]
PAGE = ROOT / "docs" / "conditions.md"
RESIZING = ROOT / "docs" / "resizing.md"
REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*")
CALLS = {"finish", "release", "enter", "enter_status", "NotAdmitted", "Blocker", "JobVerdict"}
"""The calls whose arguments are reasons of conditions; the arguments of `EmitEvent` are reasons of events."""
MODELS = {
    "spec.torchElasticPolicy": TorchElasticPolicy,
    "status.scaling": Scaling,
    "status.target": Target,
    "status.resized": Resized,
}
"""The fields that concern the number of workers, by path."""
KINDS = ("PodGroup",)
"""Kinds that may be missing or refused: `reconcilers.apply.apply` builds the reason from the kind."""
CREATED = ("Pod", "Service", "PodGroup", "PodDisruptionBudget", "ContainerRecreateRequest")
"""Kinds that the API server may fail to create."""


def table(title: str, page: Path = PAGE) -> list[list[str]]:
    """Return the rows of the first table below a heading."""
    section = page.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def reasons(calls: set[str]) -> Iterator[str]:
    """Yield every reason that the reconcilers and gang schedulers pass to functions with these names."""
    for path in [*(ROOT / "reconcilers").rglob("*.py"), *(ROOT / "gang").rglob("*.py")]:
        module = ast.parse(path.read_text())
        known = {
            each.targets[0].id: each.value.value
            for each in module.body
            if isinstance(each, ast.Assign)
            and isinstance(each.targets[0], ast.Name)
            and isinstance(each.value, ast.Constant)
        } | {name: value for name, value in vars(conditions).items() if isinstance(value, str)}
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and _name(call.func) in calls:
                yield from _literals(call, known)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _literals(call: ast.Call, known: dict[str, object]) -> Iterator[str]:
    for argument in (*call.args, *(each.value for each in call.keywords)):
        value = argument.value if isinstance(argument, ast.Constant) else known.get(getattr(argument, "id", ""))
        if isinstance(value, str) and REASON.fullmatch(value):
            yield value


def test_page_lists_every_field_that_has_to_do_with_the_number_of_workers() -> None:
    rows = [row[0].rpartition(".") for row in table("The number of workers", RESIZING)]
    named = {f"{path}.{name}" for path, _, names in rows for name in names.split(", ")}
    expected = {
        f"{path}.{field.alias or name}" for path, model in MODELS.items() for name, field in model.model_fields.items()
    }
    admission = {f"status.admission.{name}" for name in ("workers", "indexes", "grown", "declined", "idle")}
    others = {"spec.schedulingPolicy.checkpointSeconds", "spec.minMembers.Worker", "status.trainingRestarts"}
    assert named == expected | admission | others


def test_page_lists_every_phase_with_its_conditions_and_next_phases() -> None:
    rows = {row[0]: row for row in table("Phases")}
    assert rows.keys() == {phase or "(none)" for phase in TRUE_IN}
    for phase, true in TRUE_IN.items():
        row = rows[phase or "(none)"]
        assert (row[1], row[3]) == (", ".join(true) or "-", ", ".join(NEXT[phase]) or "-")


def test_page_lists_when_each_field_may_change() -> None:
    words = {True: "yes", False: "no"}
    expected = [[each.path, words[each.waiting], words[each.admitted], words[each.finished]] for each in TABLE]
    assert table("Which fields may change when") == expected


def test_page_lists_every_reason_to_wait() -> None:
    assert {row[0] for row in table("Reasons to wait")} == eligibility.CODES | set(get_args(explain.Code))


def test_page_lists_every_reason_of_a_condition() -> None:
    rows = table("Reasons of conditions")
    told = {row[1] for row in rows}
    made = set(reasons(CALLS)) - set(TRUE_IN) | set(re.findall(r'"(Gang[A-Za-z]+)"', _sources("gang")))
    made |= {f"{kind}{what}" for kind in KINDS for what in ("Missing", "Refused")}
    made |= {f"{kind}{status.NOT_CREATED}" for kind in CREATED} | {"PodDisruptionBudgetRefused"}
    assert made - told == set(), "reasons that the page does not explain"
    known = made | set(TRUE_IN) | _words()
    assert told - known == set(), "reasons that no code gives"
    assert {each for row in rows for each in row[0].split(", ")} <= {each for true in TRUE_IN.values() for each in true}
    assert all(all(row) for row in rows)


def test_page_lists_every_event() -> None:
    told = {reason for row in table("Events") for reason in row[0].split(", ")}
    assert set(reasons({"EmitEvent"})) - told == set(), "events that the page does not explain"
    assert told - _words() == set(), "events that no code writes"


def _words() -> set[str]:
    """Return all words that may be a reason in the reconcilers, and the reasons that clients know."""
    return set(re.findall(r'"([A-Z][A-Za-z]+)"', _sources("reconcilers") + Path(conditions.__file__).read_text()))


def _sources(room: str) -> str:
    return "\n".join(path.read_text() for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("reason", ["PodFailed", "QueueDrained", "PodsForbidden", "InvalidSpec"])
def test_the_search_of_the_sources_finds_known_reasons(reason: str) -> None:
    """The other tests compare the page with the reasons that this search finds, so the search itself is tested."""
    assert reason in {*reasons(CALLS), *re.findall(r'"([A-Z][A-Za-z]+)"', _sources("reconcilers"))}
