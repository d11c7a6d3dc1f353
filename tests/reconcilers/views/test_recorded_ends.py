"""The ends of pods as real kubelets reported them (`recorded_ends`), through the views of all processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cache import views
from reconcilers.plan import failures
from reconcilers.views import pod_history, pod_outcome, pod_view
from reconcilers.views.pod_view import PodView

FOLDER = Path(__file__).parent / "recorded_ends"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
OWN_ENDS = {name for name in NAMES if "own-exit-0" in name}
INDISTINGUISHABLE = {
    "evicted-for-full-volume",
    "liveness-probe",
    "liveness-probe-on-failure",
    "restarted-by-kruise-on-failure",
    "startup-probe",
    "startup-probe-on-failure",
}
"""The ends that look like the program's own in every field, unless a hook of the container marks them. The end of a pod
whose restart was requested is recognized by the request (`reconcilers.plan.in_place.interruptions`).
"""
DISRUPTED = ("deleted-", "drained", "evicted-by-api", "evicted-for-taint", "node-shutdown", "preempted", "rejected")
ENDS = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES}


def objects(name: str) -> list[dict[str, Any]]:
    return [event["object"] for event in ENDS[name] if event["type"] != "DELETED"]


def see(bodies: list[dict[str, Any]]) -> list[PodView]:
    seen: list[PodView] = []
    for body in bodies:
        view = pod_view.trim(body)
        seen.append(pod_history.remember(seen[-1], view) if seen else view)
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_recorded_end_is_a_success_only_if_it_was_the_programs_own(name: str) -> None:
    last = see(objects(name))[-1]
    assert (last.phase == "Succeeded") is (name in OWN_ENDS | INDISTINGUISHABLE)
    assert not views.pod_view(objects(name)[-1]).running
    if name.startswith(DISRUPTED) and name not in OWN_ENDS and "own-exit" not in name:
        assert last.deleting or failures.is_disrupted(last)
        assert failures.is_disrupted(last) or not last.disruption


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name.startswith(("preempted", "node-shutdown", "rejected"))]
)
def test_deed_of_a_node_names_it_and_does_not_blame_the_job(name: str) -> None:
    last = see([body for body in objects(name) if "deletionTimestamp" not in body["metadata"]])[-1]
    if name in OWN_ENDS or last.deleting:
        return
    fault = failures.PodFault(last, failures.classify("Never", last), failures.describe(last))
    assert fault.kind == "Disruption"
    assert "AskedToStop" not in fault.message
    assert failures.blames_node(fault) is name.startswith("rejected") or "lost" in name


@given(name=st.sampled_from(sorted(set(NAMES) - OWN_ENDS - INDISTINGUISHABLE)), data=st.data())
def test_no_selection_of_the_objects_of_another_end_shows_a_success(name: str, data: st.DataObject) -> None:
    bodies = objects(name)
    chosen = data.draw(st.lists(st.integers(0, len(bodies) - 1), min_size=1, max_size=2 * len(bodies)))
    if name.startswith("rejected"):  # only earlier objects tell this end from the program's own end
        chosen = sorted({*chosen, *range(len(bodies))})
    assert all(view.phase != "Succeeded" for view in see([bodies[index] for index in chosen]))


@pytest.mark.parametrize("name", sorted({name for name in NAMES if "exit-3" in name or "oom" in name} | {"crash-loop"}))
def test_failure_of_the_program_is_seen_with_its_exit_and_counts_once(name: str) -> None:
    codes = [3, 137]
    failed = [
        (index, status["restartCount"])
        for index, body in enumerate(objects(name))
        for status in body["status"].get("containerStatuses") or ()
        if status["name"] == "torch" and status["state"].get("terminated", {}).get("exitCode") in codes
        if "deletionTimestamp" not in body["metadata"]
    ]
    seen = see(objects(name))
    for index, restarts in failed:
        assert seen[index].phase == "Failed" or seen[index].restarts == restarts + 1
        assert seen[index].exit_code in codes
    counts = [view.restarts for view in seen if not view.deleting]
    assert counts == sorted(counts)


def test_restart_by_rule_is_no_end_of_the_pod() -> None:
    seen = see([body for body in objects("restarted-by-rule") if "deletionTimestamp" not in body["metadata"]])
    assert {view.phase for view in seen} == {"Pending", "Running"}
    assert not any(view.restarted_by_node for view in seen)
    assert [view.restarts for view in seen] == sorted(view.restarts for view in seen)


@pytest.mark.parametrize("name", NAMES)
def test_views_of_recorded_ends_agree_on_what_occupies_room(name: str) -> None:
    for body in objects(name):
        ours, leaders = pod_view.trim(body), views.pod_view(body)
        assert pod_view.occupies(ours) == leaders.occupies or (leaders.deleting and not leaders.placed)
        assert ours.phase == pod_outcome.effective_phase(body)
