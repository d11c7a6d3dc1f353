"""Pods that leave their nodes early: the writes, the deletions, and the failures that are not counted."""

from dataclasses import replace
from typing import Any

import pytest

from crds import labels
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, DeletePods, EmitEvent, PatchPodMetadata, Plan, WriteStatus
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW, all_pods, job, observe, pod, status, task

LOCAL = ReconcileSettings(in_place="local")
MASTER, WORKER, OTHER = (replace(each, node=f"n{number}") for number, each in enumerate(all_pods(), 1))
CORDONED = {"n2": "is cordoned"}
TAINTED = {"n2": "has the taint karpenter.sh/disrupted"}
AT = "2026-01-02T03:04:05Z"
DEPARTURE = {"node": "n2", "since": AT}
EVICTED = {"disruption": "EvictionByEvictionAPI: Eviction API: evicting"}
COUNTS = ("restartCount", "disruptions", "nodeFailures")


def decide(of: TorchJob, *pods: PodView, **fields: Any) -> Plan:
    return plan(replace(observe(of, *pods), **fields), LOCAL, NOW)


def written(found: Plan) -> dict[str, Any]:
    changes = [each.change["status"] for each in found.actions if isinstance(each, WriteStatus)]
    return {name: value for name, value in changes[0].items() if name != "taskStatuses"} if changes else {}


def deleted(found: Plan) -> list[str]:
    return [each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods]


def restarted(found: Plan) -> list[str]:
    return [each.name for action in found.actions if isinstance(action, PatchPodMetadata) for each in action.pods]


def running(**fields: Any) -> TorchJob:
    return job(status=status("Running", **fields))


def single(**fields: Any) -> TorchJob:
    return job(status=status("Running", **fields), restartScope="Task")


@pytest.mark.parametrize("nodes", [CORDONED, TAINTED])
def test_static_job_restarts_without_a_count_and_replaces_the_leaving_pod_alone(nodes: dict[str, str]) -> None:
    found = decide(running(), MASTER, WORKER, OTHER, departures=nodes)
    change = written(found)
    assert (change["restartGeneration"], change["departed"]) == (1, {"digits-worker-0": DEPARTURE})
    assert not change.keys() & set(COUNTS)
    assert deleted(found) == ["digits-worker-0"]
    assert restarted(found) == ["digits-master-0", "digits-worker-1"]


def test_pod_that_others_can_do_without_is_replaced_alone() -> None:
    found = decide(single(), MASTER, WORKER, OTHER, departures=CORDONED)
    change = written(found)
    assert change == {"replacing": ["worker-0"], "departed": {"digits-worker-0": DEPARTURE}}
    assert (deleted(found), restarted(found)) == (["digits-worker-0"], [])
    told = [each.message for each in found.actions if isinstance(each, EmitEvent)]
    why = "pod digits-worker-0 leaves node n2, which is cordoned"
    assert told == [f"{why}; deleted with the grace period, and made elsewhere"]


@pytest.mark.parametrize("deleting", [False, True])
def test_announced_eviction_counts_nothing(deleting: bool) -> None:
    found = decide(single(), MASTER, replace(WORKER, deleting=deleting, **EVICTED), OTHER)
    assert written(found)["departed"] == {"digits-worker-0": DEPARTURE}
    assert not written(found).keys() & set(COUNTS)
    assert deleted(found) == ([] if deleting else ["digits-worker-0"])


@pytest.mark.parametrize(
    "lost",
    [
        {"deleting": True, "disruption": "DeletionByTaintManager"},
        {"deleting": True, "disruption": "DeletionByPodGC: node not found"},
        {"deleting": True, "disruption": "Evict: Pod is evicted, because of preempt"},
        {"deleting": True, "disruption": "PreemptionByScheduler: volcano: preempting"},
        {"phase": "Failed", "reason": "Terminated", "disruption": "TerminationByKubelet"},
        {"phase": "Failed", "reason": "Evicted", **EVICTED},
        {"deleting": True},
    ],
)
def test_pod_that_is_lost_already_is_a_disruption_as_before(lost: dict[str, Any]) -> None:
    change = written(decide(single(), MASTER, replace(WORKER, **lost), OTHER))
    assert (change["disruptions"], "departed" in change) == (1, False)


def test_pod_that_a_leaving_node_has_ended_has_left_it() -> None:
    ended = replace(WORKER, phase="Failed", reason="Terminated", disruption="TerminationByKubelet", exit_code=143)
    change = written(decide(single(), MASTER, ended, OTHER, departures=TAINTED))
    assert (change["departed"], change.keys() & set(COUNTS)) == ({"digits-worker-0": DEPARTURE}, set())
    failed = replace(WORKER, phase="Failed", reason="Error", exit_code=137)
    assert written(decide(single(), MASTER, failed, OTHER, departures=TAINTED))["restartCount"] == 1


def test_failures_that_follow_from_a_departure_are_not_judged() -> None:
    follows = replace(OTHER, phase="Failed", exit_code=1, lost_peer=True)
    change = written(decide(running(), MASTER, replace(WORKER, deleting=True, **EVICTED), follows))
    assert (change["restartGeneration"], "restartCount" in change) == (1, False)


def test_departure_is_written_once() -> None:
    single_again = single(replacing=["worker-0"], departed={"digits-worker-0": DEPARTURE})
    found = decide(single_again, MASTER, WORKER, OTHER, departures=CORDONED)
    assert (written(found), deleted(found)) == ({}, ["digits-worker-0"])
    whole = job(status=status("Admitted", restartGeneration=1, departed={"digits-worker-0": DEPARTURE}))
    found = decide(whole, MASTER, WORKER, OTHER, departures=CORDONED)
    assert (written(found), deleted(found)) == ({}, ["digits-worker-0"])


def test_leaving_pod_is_replaced_when_another_failure_restarts_the_job() -> None:
    of = job(status=status("Admitted", restartGeneration=1))
    found = decide(of, replace(MASTER, restart=1), WORKER, replace(OTHER, restart=1), departures=CORDONED)
    assert (written(found), deleted(found), restarted(found)) == ({}, ["digits-worker-0"], [])


def test_new_pod_avoids_the_node_and_stays_if_it_is_bound_there() -> None:
    left = single(replacing=["worker-0"], departed={"digits-worker-0": DEPARTURE})
    found = decide(left, MASTER, OTHER)
    [made] = [each for action in found.actions if isinstance(action, CreatePods) for each in action.manifests]
    terms = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["preference"]["matchExpressions"][0]["values"] for term in terms] == [["n2"]]
    assert made["metadata"]["annotations"][labels.LEFT_NODES] == "n2"
    back = replace(WORKER, uid="new", phase="Pending", avoids="n1,n2")
    assert written(decide(left, MASTER, back, OTHER, departures=CORDONED)) == {"replacing": []}


def test_departure_ends_when_the_pod_runs_elsewhere() -> None:
    left = single(departed={"digits-worker-0": DEPARTURE})
    waiting = replace(WORKER, uid="new", phase="Pending", node="")
    assert written(decide(left, MASTER, waiting, OTHER)) == {}
    elsewhere = replace(WORKER, uid="new", node="n9")
    assert written(decide(left, MASTER, elsewhere, OTHER)) == {"departed": None}


def test_departure_goes_on_if_the_pod_leaves_again_before_it_runs() -> None:
    earlier = {"node": "n7", "since": "2026-01-02T03:01:00Z"}
    waiting = replace(WORKER, uid="new", phase="Pending")
    change = written(decide(single(departed={"digits-worker-0": earlier}), MASTER, waiting, OTHER, departures=CORDONED))
    assert change["departed"] == {"digits-worker-0": {"node": "n2", "earlier": ["n7"]}}


def test_pod_that_tolerates_everything_is_not_moved_between_leaving_nodes_for_ever() -> None:
    doomed = {name: "has the taint karpenter.sh/disrupted" for name in ("n2", "n7", "n8")}
    of, departed, avoids = single(), dict[str, Any](), ""
    for count, node in enumerate(["n2", "n7", "n8", "n2"]):
        found = decide(of, MASTER, OTHER, departures=doomed)
        made = [each for action in found.actions if isinstance(action, CreatePods) for each in action.manifests]
        avoids = made[0]["metadata"]["annotations"].get(labels.LEFT_NODES, "")
        waiting = replace(WORKER, uid=f"new-{count}", phase="Pending", node=node, avoids=avoids)
        change = written(decide(of, MASTER, waiting, OTHER, departures=doomed))
        departed = change.get("departed", {})
        of = single(departed={"digits-worker-0": {**DEPARTURE, **departed.get("digits-worker-0", {})}})
    assert (avoids, departed) == ("n2,n7,n8", {})


def test_pods_do_not_leave_once_another_has_succeeded_where_they_meet() -> None:
    store = pod("Rendezvous", node="n3")
    policy = {"numMinReplicas": 1, "numMaxReplicas": 2}
    of = job({"Worker": task(2)}, sizes.granted("Running", 2, 2), torchElasticPolicy=policy)
    for phase, leaves in (("Succeeded", []), ("Running", ["digits-worker-1"])):
        first, last = pod("Worker", 0, phase, node="n1"), pod("Worker", 1, node="n2")
        assert deleted(decide(of, store, first, last, departures=CORDONED, reservation=sizes.held(2))) == leaves


@pytest.mark.parametrize("reason", ["PreemptionByScheduler: volcano: preempting", "Evict: because of reclaim"])
def test_preempted_pod_is_a_disruption_once_it_is_deleted_and_no_node_is_avoided(reason: str) -> None:
    policy = {"numMinReplicas": 1, "numMaxReplicas": 3}
    store = pod("Rendezvous", node="n3")
    of = job({"Worker": task(2)}, sizes.granted("Running", 2, 2), torchElasticPolicy=policy)
    gone = {"digits-worker-1": {"node": "", "since": AT}}
    for deleting, counted in ((False, {}), (True, {"disruptions": 1, "departed": gone})):
        lost = pod("Worker", 1, node="n2", disruption=reason, deleting=deleting)
        change = written(decide(of, store, pod("Worker", 0, node="n1"), lost, reservation=sizes.held(2)))
        assert {name: change[name] for name in change.keys() & {*COUNTS, "departed"}} == counted
