"""When the start gates of workers that meet at a rendezvous store open: together, after 30 s, or at once."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds import labels
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from reconcilers.values import CreatePods, PatchPodMetadata, Plan
from reconcilers.views.pod_view import PodView
from tests.reconcilers.plan.test_plan import decide
from tests.support.reconcilers.builders import ADMISSION, NOW, RESERVATION, manifest, observe, pod, status, task
from tests.support.reconcilers.simulation import Simulation

UPSTREAM = [{"taskType": "Rendezvous", "phase": "Running"}]
BOUNDS = {"numMinReplicas": 1, "numMaxReplicas": 8}
STORE = pod("Rendezvous")
SECOND = NOW.timestamp()


def charge(workers: int) -> dict[str, int]:
    """Return the charge of some workers and their store."""
    return {"jobs": 1, "pods": workers + 1, "cpu": 1000 * (workers + 1)}


def manifest_of(workers: int, phase: str = "Admitted", wish: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a job that was granted some workers, and by default requests the same number."""
    admission = ADMISSION | {"charge": charge(workers), "workers": workers, "grown": 0}
    tasks = {
        "Worker": task(wish or workers, dependsOn=UPSTREAM),
        "Rendezvous": task(auxiliary=True, critical=True),
    }
    return manifest(tasks, status(phase, admission=admission, **more), torchElasticPolicy=BOUNDS)


def elastic(*args: Any, **fields: Any) -> TorchJob:
    """Return the parsed `manifest_of`."""
    return torchjob.parse(manifest_of(*args, **fields))


def at_gate(index: int, ago: float = 0.0, **fields: Any) -> PodView:
    """Return a worker that reached its gate some seconds ago."""
    return pod("Worker", index, "Pending", shut_since=SECOND - ago, **fields)


def arriving(index: int) -> PodView:
    """Return a worker that is not at its gate yet."""
    return pod("Worker", index, "Pending", shut_since=math.inf)


def opened(found: Plan) -> list[str]:
    """Return the names of the pods whose gates are opened."""
    patches = [action for action in found.actions if isinstance(action, PatchPodMetadata)]
    assert all(patch.metadata == {"annotations": {labels.START: "open"}} for patch in patches)
    assert len(patches) <= 1, "all gates open at once"
    return [each.name for patch in patches for each in patch.pods]


def growing(**more: Any) -> dict[str, Any]:
    times = {"since": "2026-01-02T03:00:00Z", "deadline": "2026-01-02T03:14:00Z"}
    return {"scaling": {"from": 2, "to": 4, **times, **more}}


class TestFirstStart:
    def test_workers_wait_until_all_of_them_are_there(self) -> None:
        found = decide(observe(elastic(3), STORE, at_gate(0), at_gate(1), arriving(2)))
        assert opened(found) == []
        assert found.requeue_after is not None
        assert 0 < found.requeue_after <= 30
        complete = decide(observe(elastic(3), STORE, at_gate(0), at_gate(1), at_gate(2)))
        assert opened(complete) == ["digits-worker-0", "digits-worker-1", "digits-worker-2"]

    def test_nobody_waits_longer_than_half_a_minute(self) -> None:
        still = decide(observe(elastic(3), STORE, at_gate(0, ago=29), at_gate(1), arriving(2)))
        assert opened(still) == []
        late = decide(observe(elastic(3), STORE, at_gate(0, ago=30), at_gate(1), arriving(2)))
        assert opened(late) == ["digits-worker-0", "digits-worker-1"], "the third worker has not reached its gate"

    def test_workers_that_do_not_exist_yet_are_awaited(self) -> None:
        assert opened(decide(observe(elastic(2), STORE, at_gate(0)))) == []

    def test_gates_stay_shut_without_store(self) -> None:
        starting = pod("Rendezvous", phase="Pending")
        assert opened(decide(observe(elastic(2), starting, at_gate(0, ago=60), at_gate(1)))) == []

    def test_new_workers_have_closed_gates(self) -> None:
        assert gates_of_new_pods(decide(observe(elastic(2), STORE))) == {None}


class TestReplacement:
    def test_worker_that_replaces_another_starts_at_once(self) -> None:
        found = decide(observe(elastic(2, "Running"), STORE, pod("Worker", 0)))
        assert gates_of_new_pods(found) == {"open"}

    def test_gate_that_was_closed_meanwhile_opens_at_once(self) -> None:
        found = decide(observe(elastic(3, "Running"), STORE, pod("Worker", 0), arriving(1), arriving(2)))
        assert opened(found) == ["digits-worker-1", "digits-worker-2"]


class TestGrowth:
    def test_workers_of_one_growth_start_together(self) -> None:
        old = (STORE, pod("Worker", 0), pod("Worker", 1))
        job = elastic(4, "Running", **growing())
        assert gates_of_new_pods(decide(observe(job, *old))) == {None}
        assert opened(decide(observe(job, *old, at_gate(2), arriving(3)))) == []
        assert opened(decide(observe(job, *old, at_gate(2, ago=30), arriving(3)))) == ["digits-worker-2"]
        both = decide(observe(job, *old, at_gate(2), at_gate(3)))
        assert opened(both) == ["digits-worker-2", "digits-worker-3"]

    def test_wish_that_waits_for_quota_holds_nobody_back(self) -> None:
        waiting = elastic(3, "Running", wish=4, **growing(deadline=None))
        found = decide(observe(waiting, STORE, pod("Worker", 0), arriving(1), arriving(2)))
        assert opened(found) == ["digits-worker-1", "digits-worker-2"]


def times_of_start(*arrivals: int) -> list[int]:
    """Return after how many seconds the gates of the added workers open, for the times at which the workers reach their
    gates.

    The job is reconciled at each arrival, and when it asked to be reconciled.
    """
    size = 2 + len(arrivals)
    scaling = {"from": 2, "to": size, "since": "2026-01-02T03:00:00Z", "deadline": "2026-01-02T03:14:00Z"}
    old = {each.name: each for each in (STORE, pod("Worker", 0), pod("Worker", 1))}
    held = replace(RESERVATION, charge=charge(size), size=size)
    cluster = Simulation(manifest_of(size, "Running", scaling=scaling), old, held)
    opened: dict[str, int] = {}
    due = 0.0
    for second in range(max(arrivals) + 40):
        cluster.now = NOW + timedelta(seconds=second)
        for index, arrival in enumerate(arrivals, 2):
            if second == arrival:
                name = f"digits-worker-{index}"
                cluster.pods[name] = replace(cluster.pods[name], shut_since=cluster.now.timestamp())
        if second in arrivals or second >= due:
            cluster.reconcile()
            due = second + (cluster.plan().requeue_after or math.inf)
        opened |= {name: second for name, each in cluster.pods.items() if not each.gated and name not in opened}
    return [opened[f"digits-worker-{index}"] for index in range(2, size)]


class TestTimes:
    """Each separate opening of gates costs one restart of the training processes of all workers."""

    @pytest.mark.parametrize(
        ("arrivals", "starts"),
        [
            ((5, 25), [25, 25]),
            ((25, 5), [25, 25]),
            ((5, 36), [35, 36]),
            ((5, 15, 50), [35, 35, 50]),
        ],
    )
    def test_joiners_apart_start_together_within_half_a_minute(self, arrivals: Any, starts: list[int]) -> None:
        assert times_of_start(*arrivals) == starts


def gates_of_new_pods(found: Plan) -> set[str | None]:
    """Return the annotations of the start gates of the workers that are created."""
    new = [each for action in found.actions if isinstance(action, CreatePods) for each in action.manifests]
    workers = [each for each in new if "-worker-" in each["metadata"]["name"]]
    assert workers
    return {each["metadata"]["annotations"].get(labels.START) for each in workers}
