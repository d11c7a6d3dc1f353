"""The restart that brings all pods into a new world: first the places are written, then all containers restart at
once.
"""

import math
from dataclasses import replace
from typing import Any

from crds import labels
from crds.api_resources import RECREATE_REQUESTS
from reconcilers.plan.in_place.drivers import find_drivers
from reconcilers.plan.in_place.restarts import Restarts, RestartStep
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.pods import static_world
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeletePods, PatchPodMetadata
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW, UID, pod

POLICY: dict[str, Any] = {"torchElasticPolicy": {"numMinReplicas": 1, "mode": "InPlaceRestart"}}
AFTER = f"{UID}-1"


def worker(index: int, **fields: Any) -> PodView:
    """Return a worker that runs in the world of two workers."""
    return pod("Worker", index, **{"node": "n1", "place": f"{index} 2 {UID}-0"} | fields)


NEW = worker(2, phase="Pending", place="", shut_since=NOW.timestamp())


def step(*pods: PodView, indexes: str | None = None, size: int = 3, driver: Any = "local") -> RestartStep:
    """Return the first step into the world of the granted workers, which is the second world."""
    found = sizes.granted("Running", size, size, indexes=indexes) | {"restartGeneration": 1}
    job = sizes.workers(size, found, **POLICY)
    assert job.admission is not None
    settings = ReconcileSettings(in_place=driver, served=frozenset({RECREATE_REQUESTS}))
    members = Grant(job, job.admission).members
    return Restarts(
        job=job,
        pods=pods,
        leads=frozenset(member.lead for member in members.values()),
        deletion=PodDeletion(NOW.timestamp(), 60, frozenset(), 3600),
        drivers=find_drivers(job, pods, (), settings, NOW.timestamp()),
        places=static_world.places(job, job.admission, members),
    ).job_step()


def notes(found: RestartStep) -> list[tuple[list[int], dict[str, str]]]:
    """Return the annotations that the pods get, by the indexes of the pods."""
    patches = (each for each in found.actions if isinstance(each, PatchPodMetadata))
    return [([each.index for each in one.pods], dict(one.metadata.get("annotations", {}))) for one in patches]


def marked(found: RestartStep) -> list[int]:
    """Return the indexes of the pods that are brought into the new world."""
    patches = (each for each in found.actions if isinstance(each, PatchPodMetadata))
    return [each.index for one in patches if "labels" in one.metadata for each in one.pods]


def done(index: int) -> PodView:
    return worker(
        index, requested_restart="1", completed_restart="1", restart_requested_at=NOW.timestamp(), place=place(index)
    )


def place(index: int, size: int = 3) -> str:
    return f"{index} {size} {AFTER}"


def test_places_are_written_before_any_container_is_restarted() -> None:
    size = {labels.WORLD_SIZE: "3", labels.RENDEZVOUS_ID: AFTER}
    first, second, third = notes(step(worker(0), worker(1), NEW))
    assert first == ([0, 1], size), "pods that keep their rank are written together"
    assert second == ([2], {labels.RANK: "2", **size})
    assert (third[0], third[1][labels.RESTART_CONTAINERS]) == ([0, 1], "1"), "both pods are restarted at once"


def test_rank_is_the_position_among_the_granted() -> None:
    found = notes(step(worker(0), worker(2), indexes="0,2", size=2))
    assert ([2], {labels.RANK: "1", labels.RENDEZVOUS_ID: AFTER}) in found


def test_nobody_is_in_the_new_world_before_rank_0() -> None:
    waiting = replace(NEW, place=place(2))
    asked = replace(done(0), completed_restart="")
    assert marked(step(asked, done(1), waiting)) == []
    found = step(done(0), done(1), waiting)
    assert (marked(found), found.done, found.blocked) == ([0, 1, 2], True, True)
    assert marked(step(done(1), waiting)) == [1, 2], "the pod of rank 0 is made again"


def test_gates_open_with_the_same_write_as_soon_as_the_world_before_has_ended() -> None:
    waiting = replace(NEW, place=place(2))
    asked = {"requested_restart": "1/0", "restart_requested_at": NOW.timestamp(), "has_restart_agent": True}
    first, second = (worker(index, place=place(index), **asked) for index in range(2))
    between = [replace(each, phase="Pending", restarts=1) for each in (first, second)]
    for going in ((first, second), (between[0], second), (first, between[1])):
        assert marked(step(*going, waiting, driver="auto")) == []
    found = step(*between, waiting, driver="auto")
    assert (marked(found), notes(found)) == ([2], [([2], {labels.START: "open"})])


def test_pod_that_ended_with_its_peer_is_replaced() -> None:
    ended = worker(1, phase="Failed", exit_code=1)
    found = step(worker(0), ended)
    assert [each.pods for each in found.actions if isinstance(each, DeletePods)] == [(ended,)]


def test_pods_are_replaced_where_nothing_restarts_them_or_their_ranks_are_fixed() -> None:
    for found in (step(worker(0), worker(1), driver="recreate"), step(worker(0, place=""), worker(1, place=""))):
        assert [each.name for one in found.actions if isinstance(one, DeletePods) for each in one.pods] == [
            "digits-worker-0",
            "digits-worker-1",
        ]


def test_pod_on_its_way_to_the_gate_stays() -> None:
    coming = replace(NEW, node="", shut_since=math.inf)
    assert marked(step(done(0), coming)) == [0, 2]
    assert not any(isinstance(each, DeletePods) for each in step(worker(0), coming).actions)


def test_requests_to_kruise_follow_the_places() -> None:
    healing = [worker(index, self_healing=True) for index in range(2)]
    found = step(*healing, NEW, driver="kruise").actions
    assert [type(each).__name__ for each in found] == ["PatchPodMetadata"] * 2 + ["CreateObject"] * 2
    assert not any(labels.RESTART_CONTAINERS in note for _, note in notes(step(*healing, NEW, driver="kruise")))
