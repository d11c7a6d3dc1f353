"""All pods of a job get a request in one reconcile, however many pods there are."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crds import labels
from crds.api_resources import POD_GROUPS, RECREATE_REQUESTS, Resource
from kube.api import Manifest
from reconcilers.apply.apply import ASK_SECONDS, Application, Outcome
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreateObject, DeletePods, PatchPodMetadata, Plan
from tests.support.reconcilers.builders import KEY, pod
from tests.support.waiting import patient

SETTINGS = ReconcileSettings(most_writes=10, most_seconds=0.0, parallel_writes=2)
PODS = tuple(pod("Worker", index) for index in range(50))
ASKS = PatchPodMetadata(PODS, {"annotations": {"a": "b"}})


class Recorder:
    """A cluster that keeps the names of the objects that are written. Creates wait for each other in pairs, and so do
    openings of start gates."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.bodies: list[Manifest] = []
        self.pairs = threading.Barrier(2, timeout=patient())

    def patch(self, _: Resource, name: str, change: Manifest, __: str) -> Manifest:
        if labels.START in change["metadata"].get("annotations", {}):
            self.pairs.wait()
        self.names.append(name)
        self.bodies.append(change)
        return {"metadata": {"resourceVersion": "7"}}

    def delete(self, _: Resource, name: str, __: str, **___: object) -> None:
        self.names.append(name)

    def create(self, _: Resource, body: Manifest, __: str) -> Manifest:
        self.pairs.wait()
        self.names.append(body["metadata"]["name"])
        return body


@pytest.fixture
def cluster() -> Any:
    return Recorder()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def carry_out(cluster: Any, executor: ThreadPoolExecutor, plan: Plan, seconds: float = 1.0) -> Outcome:
    """Run a plan in a reconcile that began `seconds` ago."""
    now = [0.0]
    run = Application(cluster, SETTINGS, executor, lambda: now[0], KEY, lambda: True, lambda *_: "")
    now[0] = seconds
    return run.run(plan)


def test_every_pod_is_asked_beyond_the_budget_of_other_writes(cluster: Any, executor: ThreadPoolExecutor) -> None:
    assert carry_out(cluster, executor, Plan((ASKS,))) == Outcome()
    assert len(cluster.names) == len(PODS)
    assert carry_out(cluster, executor, Plan((DeletePods(PODS),))) == Outcome(0.0)
    assert len(cluster.names) == len(PODS) + SETTINGS.parallel_writes


def test_asks_end_after_their_own_time(cluster: Any, executor: ThreadPoolExecutor) -> None:
    assert carry_out(cluster, executor, Plan((ASKS,)), ASK_SECONDS + 1.0) == Outcome(0.0)
    assert 0 < len(cluster.names) < len(PODS)


def test_the_server_keeps_no_record_of_the_fields_of_a_pod(cluster: Any, executor: ThreadPoolExecutor) -> None:
    carry_out(cluster, executor, Plan((PatchPodMetadata(PODS[:1], {"labels": {"a": "b"}}),)))
    assert cluster.bodies == [{"metadata": {"labels": {"a": "b"}, "uid": PODS[0].uid, "managedFields": [{}]}}]


def test_requests_for_many_pods_are_made_at_the_same_time(cluster: Any, executor: ThreadPoolExecutor) -> None:
    requests = [CreateObject(RECREATE_REQUESTS, {"metadata": {"name": f"request-{n}"}}) for n in range(20)]
    assert carry_out(cluster, executor, Plan(tuple(requests))) == Outcome()
    assert sorted(cluster.names) == sorted(f"request-{n}" for n in range(20))


def test_gates_of_pods_with_ranks_of_their_own_are_opened_at_the_same_time(
    cluster: Any, executor: ThreadPoolExecutor
) -> None:
    ranks = [PatchPodMetadata((pod,), {"annotations": {labels.START: "open", labels.RANK: pod.name}}) for pod in PODS]
    assert carry_out(cluster, executor, Plan((ASKS, *ranks))) == Outcome()
    assert sorted(cluster.names[len(PODS) :]) == sorted(cluster.names[: len(PODS)]) == sorted(pod.name for pod in PODS)
    given = [body["metadata"]["annotations"].get(labels.RANK) for body in cluster.bodies[len(PODS) :]]
    assert sorted(given) == sorted(pod.name for pod in PODS)


def test_objects_of_different_kinds_are_made_one_kind_after_the_other(
    cluster: Any, executor: ThreadPoolExecutor
) -> None:
    kinds = (POD_GROUPS, POD_GROUPS, RECREATE_REQUESTS, RECREATE_REQUESTS)
    actions = tuple(CreateObject(kind, {"metadata": {"name": f"{kind.plural}-{n}"}}) for n, kind in enumerate(kinds))
    carry_out(cluster, executor, Plan(actions), 0.0)
    assert [name.partition("-")[0] for name in cluster.names] == [kind.plural for kind in kinds]
