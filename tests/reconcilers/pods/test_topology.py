"""Ranks by the places of pods: the order as a table, and the part of this order that stays while pods come and go."""

from dataclasses import replace
from typing import Any

import pytest

from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import environment, topology
from reconcilers.pods.grants import Grant
from reconcilers.pods.topology import PodLocation
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import ADMISSION, job, pod, status, task

IN_PLACE = {"numMinReplicas": 1, "mode": "InPlaceRestart"}
NODES = {"n1": {"rack": "r1"}, "n2": {"rack": "r2"}, "n3": {"rack": "r3"}}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ("", ""),
        ("a:x b:x c:x", "a b c"),
        ("a:2 b:1 c:2 d:1", "a c b d"),  # the rack of the lead comes first, the others by label
        ("a:3 b:2 c:1 d:3", "a d c b"),
        ("a:1 b: c:2 d: e:1", "a e c b d"),  # nodes without a label come last
        ("a: b:1 c:", "a c b"),  # unless the lead's own node has no label
        ("a:b2/r1 b:b1/r1 c:b2/r2 d:b2/r1 e:b1/r1", "a d c b e"),
        ("a:b2/r2 b:b2/r1 c:b1/r9 d:b2/r2 e:b1/r2", "a d b e c"),  # another block's r2 is no rack of the lead
        ("a:b1/ b:b1/r1 c:b1/ d:/r1 e:b2/", "a c b e d"),
        ("a:1 b:10 c:9", "a b c"),  # labels are compared as texts
    ],
)
def test_order(places: str, expected: str) -> None:
    levels = max((entry.count("/") for entry in places.split()), default=0) + 1
    found = [(entry.partition(":")[0], entry.partition(":")[2].split("/")) for entry in places.split()]
    assert all(len(values) == levels for _, values in found)
    assert topology.order([PodLocation(name, tuple(values)) for name, values in found]) == expected.split()


def ranks(of: TorchJob, *pods: PodView) -> dict[str, int | None]:
    assert of.admission is not None
    grant = Grant(of, of.admission)
    found = topology.rank(grant.job, grant.admission, grant.members, pods, NODES)
    return {name.removeprefix("digits-"): member.rank for name, member in found.items()}


def placed(**fields: Any) -> TorchJob:
    return job(status=status("Running", admission=ADMISSION | {"topology": ["rack"]}, **fields))


MASTER = pod("Master", node="n2", place="0  ")
FIRST, SECOND = pod("Worker", 0, "Pending", node="n1", shut_since=1.0), pod("Worker", 1, node="n2", shut_since=1.0)


def test_ranks_follow_from_racks() -> None:
    assert ranks(placed(), MASTER, FIRST, SECOND) == {"master-0": 0, "worker-0": 2, "worker-1": 1}


def test_ranks_follow_from_indexes_if_the_job_was_admitted_so() -> None:
    found = ranks(job(status=status("Running")), MASTER, FIRST, SECOND)
    assert found == {"master-0": 0, "worker-0": 1, "worker-1": 2}


def test_running_pod_keeps_its_rank_and_a_new_one_gets_the_free_one() -> None:
    runs = replace(FIRST, phase="Running", shut_since=None, place="1  ")
    assert ranks(placed(), MASTER, runs, SECOND) == {"master-0": 0, "worker-0": 1, "worker-1": 2}
    outdated = replace(runs, restart=3)
    assert ranks(placed(), MASTER, outdated, SECOND) == {"master-0": 0, "worker-0": 2, "worker-1": 1}


def test_rank_of_a_restart_in_place_that_is_under_way_stays() -> None:
    of = placed(restartGeneration=1)
    moved = replace(FIRST, shut_since=None, place=f"1 3 {environment.rendezvous_id(of)}")
    assert ranks(of, replace(MASTER, restart=1), moved, SECOND) == {"master-0": 0, "worker-0": 1, "worker-1": 2}


@pytest.mark.parametrize("place", ["7  ", "x  ", "0  "])
def test_rank_that_cannot_be_is_given_anew(place: str) -> None:
    runs = replace(FIRST, phase="Running", shut_since=None, place=place)
    assert ranks(placed(), MASTER, runs, SECOND) == {"master-0": 0, "worker-0": 2, "worker-1": 1}


def test_some_jobs_keep_the_ranks_of_their_indexes() -> None:
    admission = ADMISSION | {"topology": ["rack"], "workers": 3, "grown": 0}
    places = [
        pod("Worker", index, "Pending", node=node, shut_since=1.0) for index, node in enumerate(("n2", "n1", "n2"))
    ]
    policy: dict[str, Any] = {"torchElasticPolicy": {"numMinReplicas": 1}}
    for spec in ({"minMembers": {"Worker": 1}}, {"minMembers": {"Worker": 3}}, policy):
        of = job({"Worker": task(4)}, status("Running", admission=admission), **spec)
        assert ranks(of, *places)["worker-1"] == 1, spec
    static = job({"Worker": task(4)}, status("Running", admission=admission), **{"torchElasticPolicy": IN_PLACE})
    assert ranks(static, *places)["worker-1"] == 2


def test_world_is_bound_once_each_of_its_pods_is() -> None:
    of = placed()
    assert of.admission is not None
    grant = Grant(of, of.admission)

    def bound(*pods: PodView) -> set[str]:
        return set(topology.are_bound(grant.job, grant.admission, grant.members, pods))

    assert bound(MASTER, FIRST, SECOND) == {"digits-master-0"}
    assert bound(MASTER, FIRST) == set()
    for wrong in ({"node": ""}, {"deleting": True}, {"restart": 3}, {"phase": "Failed"}):
        assert bound(MASTER, FIRST, replace(SECOND, **wrong)) == set()
