"""The fields of a pod that its view keeps."""

import sys
from dataclasses import fields
from typing import Any

import pytest

from coordinator.cache import views
from crds.keys import JobKey
from crds.torchjob import demand
from reconcilers.plan import failures
from reconcilers.views import containers, pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import KEY

LABELS = {
    "train.distributed.io/job-uid": KEY.uid,
    "train.distributed.io/task-type": "worker",
    "train.distributed.io/task-index": "3",
    "train.distributed.io/attempt": "2",
    "train.distributed.io/restart": "1",
}


def manifest(phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "team",
            "name": "digits-worker-3",
            "uid": "u",
            "labels": dict(LABELS),
            "ownerReferences": [{"uid": KEY.uid, "controller": True}],
        },
        "spec": {
            "nodeName": "n1",
            "initContainers": [{"name": "fetch"}],
            "containers": [{"name": "log"}, {"name": "torch"}],
        },
        "status": {"phase": phase, "startTime": "2026-01-02T03:04:05Z", **status},
    }


def ended(name: str, code: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, "message": message}}}


def trim(*args: Any, **status: Any) -> PodView:
    return pod_view.trim(manifest(*args, **status))


def test_pod_waits_at_its_gate_from_the_start_of_the_gate_until_it_opens() -> None:
    waiting = manifest("Pending")
    waiting["spec"]["initContainers"].insert(0, {"name": "torchq-start"})
    assert (pod_view.trim(waiting).gated, pod_view.trim(waiting).waits) == (True, False)
    states = [{"name": "torchq-start", "state": {"running": {"startedAt": "1970-01-01T00:00:07Z"}}}]
    waiting["status"]["initContainerStatuses"] = states
    assert (pod_view.trim(waiting).waits, pod_view.trim(waiting).shut_since) == (True, 7.0)
    waiting["metadata"]["annotations"] = {"train.distributed.io/start": "open"}
    assert (pod_view.trim(waiting).gated, pod_view.trim(waiting).waits) == (False, False)


@pytest.mark.parametrize(
    "owners", [None, [], [{"uid": KEY.uid}], [{"uid": "another", "controller": True}, {"uid": KEY.uid}]]
)
def test_pod_without_controller_reference_belongs_to_no_job(owners: Any) -> None:
    forged = manifest()
    forged["metadata"]["ownerReferences"] = owners
    assert (pod_view.trim(forged).job_uid, views.pod_view(forged).job) == ("", None)
    assert views.pod_view(manifest()).job == JobKey("team", "", KEY.uid)


def test_trim_keeps_these_fields() -> None:
    up = [{"name": "torch", "state": {"running": {}}}]
    assert trim(containerStatuses=up) == PodView(
        namespace="team",
        name="digits-worker-3",
        uid="u",
        job_uid=KEY.uid,
        task="worker",
        index=3,
        attempt=2,
        restart=1,
        phase="Running",
        node="n1",
        since=1767323045.0,
        requests=(("pods", 1),),
    )


@pytest.mark.parametrize(
    ("phase", "deleting", "occupies", "running"),
    [
        ("Pending", False, True, False),
        ("Running", False, True, True),
        ("Running", True, True, False),
        ("Unknown", False, True, False),
        ("Succeeded", False, False, False),
        ("Failed", False, False, False),
        ("Failed", True, False, False),
    ],
)
def test_phase_and_deletion_decide_whether_pod_occupies_and_runs(
    phase: str, deleting: bool, occupies: bool, running: bool
) -> None:
    described = manifest(phase)
    if deleting:
        described["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    view = pod_view.trim(described)
    assert (view.deleting, pod_view.occupies(view), view.running) == (deleting, occupies, running)


CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
UP: dict[str, Any] = {"running": {}}


@pytest.mark.parametrize(
    ("torch", "log", "running", "ailment"),
    [
        (UP, UP, True, ""),
        (UP, CRASHED, True, ""),
        (CRASHED, UP, False, "CrashLoopBackOff: back-off 10s"),
        ({"waiting": {"reason": "ImagePullBackOff"}}, UP, False, "ImagePullBackOff"),
        ({"waiting": {"reason": "CreateContainerConfigError"}}, UP, False, "CreateContainerConfigError"),
        ({"waiting": {}}, UP, False, "Waiting"),
        (ended("torch", 3, "Error")["state"], UP, False, "Error: exit code 3"),
        (ended("torch", 0, "Completed")["state"], UP, True, ""),
        ({}, {}, True, ""),
        (None, CRASHED, True, ""),
    ],
)
def test_pod_runs_when_its_main_container_runs(torch: Any, log: Any, running: bool, ailment: str) -> None:
    found = trim(containerStatuses=[{"name": each, "state": state} for each, state in (("log", log), ("torch", torch))])
    assert (found.running, found.started, found.problem) == (running, True, ailment)
    side = [{"name": "torch", "state": CRASHED}]
    assert trim(initContainerStatuses=side).running, "a sidecar of that name is another container"


def test_problem_of_pending_pod_is_bounded() -> None:
    waits = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes: " + "too small " * 100,
        }
    ]
    found = trim("Pending", conditions=waits)
    assert found.problem.startswith("Unschedulable: 0/3 nodes: ")
    assert len(found.problem) <= pod_view.LONGEST_PROBLEM
    assert found.problem.endswith(("too small ...", "too ..."))
    assert trim("Failed", conditions=waits).problem == ""


@pytest.mark.parametrize(
    ("inits", "containers", "code", "reason"),
    [
        ([], [ended("log", 0), ended("torch", 1, "Error")], 1, "Error"),
        ([], [ended("log", 3, "Error"), ended("torch", 137, "OOMKilled")], 137, "OOMKilled"),
        ([], [ended("log", 3, "Error"), ended("torch", 0, "Completed")], 0, "Completed"),
        ([], [ended("log", 3, "Error")], 3, "Error"),
        ([ended("fetch", 7, "Error", "no such bucket")], [], 7, "Error"),
        ([], [], None, ""),
    ],
)
def test_exit_code_comes_from_the_decisive_container(
    inits: list[Any], containers: list[Any], code: int | None, reason: str
) -> None:
    view = trim("Failed", initContainerStatuses=inits, containerStatuses=containers)
    assert (view.exit_code, view.reason) == (code, reason)
    assert view.message == {7: "container fetch: no such bucket", 3: "container log"}.get(code or 0, "")


def test_succeeded_pod_has_exit_code_of_main_container() -> None:
    statuses = [ended("log", 0), ended("torch", 0, "Completed")]
    assert trim("Succeeded", containerStatuses=statuses).exit_code == 0


def test_first_container_is_main_without_container_named_torch() -> None:
    described = manifest("Failed", containerStatuses=[ended("side", 1), ended("train", 2)])
    described["spec"]["containers"] = [{"name": "train"}, {"name": "side"}]
    assert pod_view.trim(described).exit_code == 2


def test_running_pod_has_no_exit_code() -> None:
    assert trim(containerStatuses=[ended("log", 1)]).exit_code is None


def test_reason_of_pod_precedes_that_of_container() -> None:
    statuses = [ended("torch", 137, "Error", "Traceback:\n  deep\nValueError: no data\n\n")]
    view = trim("Failed", reason="Evicted", message="The node was low on memory.", containerStatuses=statuses)
    assert (view.reason, view.message) == ("Evicted", "ValueError: no data")


def test_labels_that_are_not_numbers_become_minus_one() -> None:
    described = manifest()
    described["metadata"]["labels"] |= {"train.distributed.io/attempt": "two", "train.distributed.io/restart": "²"}
    view = pod_view.trim(described)
    assert (view.attempt, view.restart) == (-1, -1)


def test_view_takes_about_one_kibibyte() -> None:
    said = [ended("torch", 1, "Error", "no data " * 500)]
    view = trim("Failed", containerStatuses=said)
    kept = [getattr(view, each.name) for each in fields(view)]
    assert view.requests is trim("Running").requests, "equal requests are kept once"
    shared = ("", (), view.requests, None, True, False, *range(-5, 257))
    assert sys.getsizeof(view) + sum(sys.getsizeof(each) for each in kept if each not in shared) < 1040


def test_trim_reads_restart_and_deletion_fields() -> None:
    described = manifest(
        containerStatuses=[
            {"name": "log", "restartCount": 9},
            {"name": "torch", "restartCount": 2, "lastState": ended("torch", 1, "Error", "no data")["state"]},
        ],
        conditions=[
            {"type": "DisruptionTarget", "status": "True"},
            {"type": "train.distributed.io/ContainersRestarted", "status": "True", "message": "3"},
        ],
    )
    described["spec"]["restartPolicy"] = "OnFailure"
    described["metadata"] |= {
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "finalizers": ["example.com/keep"],
        "annotations": {
            "train.distributed.io/restart-containers": "4",
            "train.distributed.io/restart-asked": "2026-01-02T03:04:05Z",
            "train.distributed.io/restarts-settled": "1",
        },
    }
    view = pod_view.trim(described)
    assert (view.exit_code, view.reason, view.message) == (1, "Error", "no data")
    assert (view.self_healing, view.restarts, view.counted_restarts) == (True, 2, 1)
    assert (view.requested_restart, view.restart_requested_at, view.completed_restart, view.failed_restart) == (
        "4",
        1767323045.0,
        "3",
        "",
    )
    assert (view.disruption, view.deadline, view.has_finalizers) == ("DisruptionTarget", 1767323045.0, True)


RESTARTS = {"exitCodes": {"operator": "NotIn", "values": [0, 3]}, "action": "RestartAllContainers"}
EVICTED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]


@pytest.mark.parametrize(
    ("policy", "main", "code", "status", "phase"),
    [
        ("Never", {}, 0, {}, "Succeeded"),
        ("Never", {}, 1, {}, "Failed"),
        ("OnFailure", {}, 0, {}, "Succeeded"),
        ("OnFailure", {}, 1, {}, "Running"),
        ("Always", {}, 0, {}, "Running"),
        ("Always", {"restartPolicy": "Never"}, 1, {}, "Failed"),
        ("Never", {"restartPolicy": "OnFailure"}, 1, {}, "Running"),
        ("Never", {"restartPolicyRules": [RESTARTS]}, 1, {}, "Running"),
        ("Never", {"restartPolicyRules": [RESTARTS]}, 3, {}, "Failed"),
        ("Never", {}, 0, {"phase": "Unknown"}, "Unknown"),
        ("Never", {}, 0, {"phase": "Pending"}, "Pending"),
        ("Never", {}, 0, {"phase": "Failed"}, "Succeeded"),  # another container failed
        ("Never", {}, 0, {"phase": "Failed", "reason": "Evicted"}, "Failed"),
        ("Never", {}, 0, {"phase": "Failed", "conditions": EVICTED}, "Failed"),
        ("Never", {}, None, {}, "Running"),
    ],
)
def test_phase_follows_the_main_container(
    policy: str, main: dict[str, Any], code: int | None, status: dict[str, Any], phase: str
) -> None:
    state = UP if code is None else ended("torch", code)["state"]
    described = manifest(containerStatuses=[{"name": "torch", "state": state}, {"name": "log", "state": UP}])
    described["spec"] |= {"restartPolicy": policy, "containers": [{"name": "log"}, {"name": "torch", **main}]}
    described["status"] |= status
    view = pod_view.trim(described)
    lingers = phase in ("Succeeded", "Failed") and "phase" not in status
    assert (view.phase, view.has_running_containers, view.problem if lingers else "") == (phase, lingers, "")
    if lingers:
        assert view.exit_code == code
    by_kubernetes = described["status"]["phase"] in ("Succeeded", "Failed")
    assert pod_view.occupies(view) is views.pod_view(described).occupies is not by_kubernetes, (
        "the pod holds its room until its containers have ended"
    )
    described["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert pod_view.trim(described).phase == described["status"]["phase"], (
        "the end of a pod that was asked to end says nothing"
    )


@pytest.mark.parametrize(
    ("finished", "phase"),
    [
        ("2026-01-02T03:03:34Z", "Succeeded"),
        ("2026-01-02T03:03:35Z", "Failed"),
        ("2026-01-02T03:04:00Z", "Failed"),
        (None, "Failed"),
    ],
)
def test_pod_that_succeeds_after_its_deletion_counts_as_failed(finished: str | None, phase: str) -> None:
    done = ended("torch", 0, "Completed")
    done["state"]["terminated"]["finishedAt"] = finished
    described = manifest("Succeeded", containerStatuses=[done])
    described["metadata"] |= {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30}
    view = pod_view.trim(described)
    assert (view.phase, pod_view.occupies(view)) == (phase, False)


@pytest.mark.parametrize("of_pod", ["Running", "Failed"])
@pytest.mark.parametrize(
    ("finished", "code", "phase"),
    [
        ("2026-01-02T03:03:34Z", 0, "Succeeded"),
        ("2026-01-02T03:03:34Z", 1, "Failed"),
        ("2026-01-02T03:03:35Z", 0, "Failed"),
        ("2026-01-02T03:04:59Z", 0, "Failed"),
        ("2026-01-02T03:04:59Z", 143, "Failed"),
        (None, 0, "Failed"),
    ],
)
def test_pod_that_succeeds_after_node_shutdown_counts_as_failed(
    of_pod: str, finished: str | None, code: int, phase: str
) -> None:
    done = ended("torch", code, "Completed")
    done["state"]["terminated"]["finishedAt"] = finished
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    described = manifest(of_pod, containerStatuses=[{"name": "log", "state": UP}, done])
    described["spec"]["restartPolicy"] = "Never"
    described["status"] |= {
        "reason": "Terminated",
        "conditions": [target | {"lastTransitionTime": "2026-01-02T03:04:05Z"}],
    }
    view = pod_view.trim(described)
    assert view.phase == phase
    if phase == "Failed" and code == 0:
        assert failures.classify("Never", view) == "Disruption"


@pytest.mark.parametrize(
    ("kind", "status", "reason", "message", "expected"),
    [
        ("DisruptionTarget", "True", "PreemptionByScheduler", "preempting\n", "PreemptionByScheduler: preempting"),
        ("DisruptionTarget", "True", "DeletionByPodGC", "", "DeletionByPodGC"),
        ("DisruptionTarget", "False", "DeletionByPodGC", "", ""),
        ("Ready", "False", "Evict", "because of reclaim", "Evict: because of reclaim"),  # Volcano writes this condition
        ("Ready", "False", "PodFailed", "", ""),
        ("Ready", "True", "Evict", "", ""),
    ],
)
def test_disruption_is_read_from_conditions(kind: str, status: str, reason: str, message: str, expected: str) -> None:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    assert trim(conditions=[condition]).disruption == expected


def test_failed_restart_is_read_from_condition() -> None:
    refused = {"type": "train.distributed.io/ContainersRestarted", "status": "False", "reason": "PodFinished"}
    assert trim(conditions=[refused | {"message": "3"}]).failed_restart == "3: PodFinished"


def test_cause_and_message_are_read_from_torchrun_output() -> None:
    said = "Root Cause (first observed failure):\n exitcode  : -9\n error_file: <N/A>\n traceback : %s\n====="
    words = said % "Signal 9 (SIGKILL) received by PID 5"
    killed = trim("Failed", containerStatuses=[ended("torch", 1, "Error", words)])
    assert (killed.cause, killed.message) == (137, "traceback : Signal 9 (SIGKILL) received by PID 5")
    hinted = trim("Failed", containerStatuses=[ended("torch", 1, "Error", said % "To enable traceback see: https://x")])
    assert hinted.message == "exitcode  : -9"
    assert trim("Failed", containerStatuses=[ended("torch", 1, "Error", "Broken pipe")]).lost_peer
    assert not trim("Succeeded", containerStatuses=[ended("torch", 0, "Completed", "Broken pipe")]).lost_peer


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 60, "-1", "٣", "1e3", ""])
def test_invalid_numbers_in_labels_are_tolerated(text: str) -> None:
    body = manifest()
    found = {name: text for name in LABELS if not name.endswith("uid")}
    body["metadata"]["labels"] |= found
    body["metadata"]["annotations"] = {"train.distributed.io/restarts-settled": text}
    body["metadata"]["resourceVersion"] = text
    view = pod_view.trim(body)
    assert (view.index, view.attempt, view.restart, view.counted_restarts, view.version) == (-1, -1, -1, 0, 0)
    assert views.pod_view(body).attempt == 0


class Beyond(dict[str, Any]):
    """A container that must not be read."""

    def get(self, *_: object) -> Any:
        raise AssertionError("it was looked at")


def test_requests_of_containers_beyond_the_limit_are_ignored() -> None:
    asked = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    many = [asked] * demand.MOST_CONTAINERS + [Beyond()] * 10_000
    remembered = containers._parse_requests.cache_info().currsize
    assert dict(containers.read({"containers": many}))["cpu"] == 1000 * demand.MOST_CONTAINERS
    assert containers._parse_requests.cache_info().currsize == remembered


@pytest.mark.parametrize("count", [1, containers.MOST_CONTAINERS, containers.MOST_CONTAINERS + 1, 100])
@pytest.mark.parametrize("name", ["cpu", "example.org/" + "x" * 60])
def test_pod_requests_are_the_sum_over_containers(count: int, name: str) -> None:
    spec = {"containers": [{"name": f"c{number}", "resources": {"requests": {name: 1}}} for number in range(count)]}
    assert dict(containers.read(spec)) == demand.pod_demand(spec)


@pytest.mark.parametrize(("names", "expected"), [(["a"], "a"), (["a", "b"], "a, b"), (list("abcd"), "a, b and 2 more")])
def test_list_names_counts_the_names_beyond_the_limit(names: list[str], expected: str) -> None:
    assert pod_view.list_names(names, 2) == expected
