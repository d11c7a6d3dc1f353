"""What `job show` prints about a job: the tasks that are short of pods, and the reasons."""

import json
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.cli import api_client
from coordinator.cli.commands import job
from coordinator.wording import explanations as cli_text
from coordinator.wording import job_details, job_facts, job_growth
from coordinator.wording.job_details import JobContext
from crds import labels
from crds.api_resources import EVENTS, POD_GROUPS, PODS, TORCHJOBS
from crds.keys import JobKey
from embedded import volcano_crds
from gang.values import GroupView
from kube.client import KubernetesCluster
from reconcilers.views import containers, pod_problems
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest, owner, task

NOW = "2026-01-01T00:00:00Z"
ADMISSION = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}, "admittedAt": NOW}


def pod(task_type: str = "worker", index: int = 0, node: str = "n", **status: Any) -> dict[str, Any]:
    """Return a pod as the API server shows it."""
    marks = {labels.TASK_TYPE: task_type, labels.TASK_INDEX: str(index)}
    metadata = {"name": f"train-{task_type}-{index}", "labels": marks}
    spec = {"restartPolicy": "Never", "containers": [{"name": "log"}, {"name": "torch"}]}
    spec |= {"nodeName": node} if node else {}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", **status}}


def waiting(reason: str, message: str = "", name: str = "torch") -> list[dict[str, Any]]:
    return [{"name": name, "state": {"waiting": {"reason": reason, "message": message}}}]


def unscheduled(message: str) -> list[dict[str, Any]]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


ENDED = [{"name": "torch", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]
DONE = [{"name": "torch", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]
LOGS_ENDED = {"name": "log", "state": {"terminated": {"exitCode": 9, "reason": "Other"}}}
LOGS_WAIT = waiting("CrashLoopBackOff", name="log")[0]


@pytest.mark.parametrize(
    ("status", "node", "expected"),
    [
        ({"phase": "Running"}, "n", None),
        ({"phase": "Succeeded"}, "n", None),
        ({}, "", "Pending: not bound to a node yet"),
        ({"conditions": unscheduled("0/3 nodes are available")}, "", "Unschedulable: 0/3 nodes are available"),
        ({"containerStatuses": waiting("ContainerCreating")}, "n", "ContainerCreating"),
        ({"containerStatuses": waiting("ImagePullBackOff", "no such image")}, "n", "ImagePullBackOff: no such image"),
        (
            {"phase": "Running", "containerStatuses": waiting("CrashLoopBackOff", "back-off 10s")},
            "n",
            "CrashLoopBackOff: back-off 10s",
        ),
        (
            {
                "initContainerStatuses": waiting("ErrImagePull", "denied", "first"),
                "containerStatuses": waiting("PodInitializing"),
            },
            "n",
            "ErrImagePull: denied",
        ),
        (
            {
                "initContainerStatuses": [{"name": each, "state": {"running": {}}} for each in ("sidecar", "fetch")],
                "containerStatuses": waiting("PodInitializing"),
            },
            "n",
            "PodInitializing: its init container fetch runs",
        ),
        (
            {"initContainerStatuses": [{"name": containers.GATE, "state": {"running": {}}}]},
            "n",
            "StartGate: its upstream tasks have not progressed far enough",
        ),
        ({"phase": "Failed", "containerStatuses": ENDED}, "n", "Error: exit code 3"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "n", "Evicted: low on disk"),
        ({"phase": "Failed"}, "n", "Failed"),
        ({"phase": "Failed", "containerStatuses": [LOGS_ENDED, *ENDED]}, "n", "Error: exit code 3"),
        ({"phase": "Running", "containerStatuses": [LOGS_WAIT, *ENDED]}, "n", "Error: exit code 3"),
    ],
)
def test_find_problem_returns_why_a_pod_does_not_run(status: dict[str, Any], node: str, expected: str | None) -> None:
    found = pod_problems.find_problem(pod(node=node, **status))
    assert (str(found) if found else None) == expected


def test_a_terminating_pod_shows_its_finalizer() -> None:
    found = pod(phase="Running")
    found["metadata"] |= {"deletionTimestamp": NOW, "finalizers": ["example.org/keep"]}
    assert str(pod_problems.find_problem(found)) == "Terminating: held by the finalizer example.org/keep"


def test_a_long_message_is_cut_to_one_line() -> None:
    found = pod_problems.find_problem(pod(containerStatuses=waiting("ImagePullBackOff", "so\nlong " * 100)))
    assert found is not None
    assert pod_problems.LONGEST - 10 < len(found.message) <= pod_problems.LONGEST
    assert found.message.endswith(" ...")
    assert "\n" not in found.message


def item(**status: Any) -> dict[str, Any]:
    found = manifest("train", "a", {"Master": task(), "Worker": task(4)}, minMembers={"Worker": 3})
    found["metadata"] |= {"namespace": "b", "uid": "u", "creationTimestamp": NOW, "resourceVersion": "1"}
    return {**found, "status": {"phase": "Admitted", "admission": ADMISSION, **status}}


def of_worker(found: dict[str, Any], *pods: dict[str, Any], **around: Any) -> dict[str, Any]:
    master = pod("master", phase="Running")
    return job_details.describe(found, JobContext(pods=(master, *pods), **around))["tasks"][1]  # type: ignore[no-any-return]


def test_a_task_below_its_minimum_is_short_with_the_reasons() -> None:
    runs = [pod(index=0, phase="Running", conditions=[{"type": "Ready", "status": "True"}])]
    pulls = [pod(index=each, containerStatuses=waiting("ImagePullBackOff", "gone")) for each in (1, 2)]
    found = of_worker(item(), *runs, *pulls)
    assert {name: found[name] for name in ("wanted", "minimum", "running", "ready", "succeeded", "failed")} == {
        "wanted": 4, "minimum": 3, "running": 1, "ready": 1, "succeeded": 0, "failed": 0,
    }  # fmt: skip
    assert found["short"]
    assert found["why"] == [
        {"reason": "ImagePullBackOff", "message": "gone", "pod": "train-worker-1", "pods": 2},
        {"reason": "NotMade", "message": "created after Master Running", "pod": "", "pods": 1},
    ]


def test_a_task_with_its_minimum_is_not_short() -> None:
    found = of_worker(item(), *(pod(index=each, phase="Running") for each in range(3)), pod(index=3, phase="Succeeded"))
    assert (found["short"], found["why"]) == (False, [])


def test_documents_of_a_failed_job_have_its_reason_and_exit_code_for_programs() -> None:
    condition = {"type": "Failed", "status": "True", "reason": "PodFailed", "message": "pod a failed"}
    job = item(phase="Failed", exitCode=3, conditions=[condition])
    why = cli_text.describe_settled(job)
    assert (why["code"], why["reason"], why["exitCode"]) == ("Failed", "PodFailed", 3)
    assert job_details.describe(job, JobContext())["ending"] == {"reason": "PodFailed", "exitCode": 3}
    assert job_details.describe(item(phase="Running"), JobContext())["ending"] is None


def test_why_names_the_pods_that_a_running_job_is_short_of() -> None:
    job = item(phase="Running", admission=ADMISSION | {"workers": 4})
    runs = [pod(index=each, phase="Running") for each in range(3)]
    cordoned = pod(index=3, node="", conditions=unscheduled("the node is cordoned"))
    worker = of_worker(job, *runs, cordoned)
    told = cli_text.format_why(cli_text.describe_settled(job, [worker])).splitlines()
    assert told[0] == "job b/train does not wait: Running"
    assert told[-1] == "  Worker: 1 Unschedulable (train-worker-3): the node is cordoned"


def test_why_says_once_where_pods_without_a_node_have_to_run() -> None:
    sentence = "all pods of the job must run on nodes with rack=r1"
    told = {"type": "Admitted", "status": "True", "message": f"no room; {sentence}", "lastTransitionTime": NOW}
    for conditions in ([], [told | {"reason": "PodsUnschedulable"}]):
        job = item(phase="Admitted", admission=ADMISSION | {"domain": "rack=r1"}, conditions=conditions)
        without = of_worker(job, pod(index=0, node="", conditions=unscheduled("no node fits")))
        assert cli_text.format_why(cli_text.describe_settled(job, [without])).count(sentence) == 1


def test_why_has_one_line_about_each_connection_with_a_pod_of_another_job() -> None:
    met = {"status": {"conditions": [{"type": labels.PORT_SHARED, "message": "met job b"}, {"type": "Ready"}]}}
    found = cli_text.describe_sharing([met, met, {}, {"status": {"conditions": None}}])
    assert found == ["met job b"]
    document = cli_text.describe_settled(item(phase="Running")) | {"sharing": found}
    assert cli_text.format_why(document).splitlines()[-1] == "  met job b"


@pytest.mark.parametrize(
    ("training", "health", "hint"),
    [
        ({"reportedAt": "2026-01-01T00:00:00Z"}, None, "no report for 5m"),
        ({"reportedAt": "2026-01-01T00:00:00Z", "stepsPerSecond": 0.02}, None, ""),
        ({"reportedAt": "2026-01-01T00:00:00Z"}, {"hangTimeoutSeconds": 60}, ""),
        ({"reportedAt": "2026-01-01T00:04:00Z"}, None, ""),
        ({}, None, ""),
    ],
)
def test_a_running_job_that_reports_no_more_gets_a_hint(
    training: dict[str, Any], health: dict[str, int] | None, hint: str
) -> None:
    job = item(phase="Running")
    job["spec"] |= {"health": health} if health else {}
    said = cli_text.describe_silence(job, training, datetime(2026, 1, 1, 0, 5, tzinfo=UTC))
    assert said.partition(":")[0] == hint
    assert cli_text.describe_silence(item(phase="Admitted"), training, datetime(2026, 1, 2, tzinfo=UTC)) == ""


def test_a_pod_in_crash_loop_back_off_does_not_count_as_running() -> None:
    crashing = [pod(index=each, phase="Running", containerStatuses=waiting("CrashLoopBackOff")) for each in range(4)]
    found = of_worker(item(), *crashing)
    assert (found["running"], found["short"], found["why"][0]["reason"]) == (0, True, "CrashLoopBackOff")


def test_a_pod_counts_as_ended_with_its_main_container() -> None:
    done = pod(index=0, phase="Running", containerStatuses=DONE)
    found = of_worker(item(), done, pod(index=1, phase="Running", containerStatuses=ENDED), pod(index=2))
    assert [found[each] for each in ("running", "succeeded", "failed")] == [0, 1, 1]
    assert [each["reason"] for each in found["why"]] == ["Error", "Pending", "NotMade"]


@pytest.mark.parametrize("status", [{"phase": "Queued"}, {"phase": "Succeeded", "admission": ADMISSION}])
def test_a_job_that_holds_no_room_is_not_short(status: dict[str, Any]) -> None:
    assert not of_worker({**item(), "status": status})["short"]


def test_a_terminating_pod_group_is_not_ready() -> None:
    group = GroupView(resource=POD_GROUPS, namespace="b", name="train-0", uid="g", job_uid="u", attempt=1,
                      phase="Ready", deleting=True)  # fmt: skip
    (shown,) = job_details.describe(item(), JobContext(groups=(group,)))["groups"]
    assert (shown["phase"], shown["message"]) == ("Terminating", job_details.GOING)
    assert of_worker(item(), groups=(group,))["why"] == [
        {"reason": "PodGroupTerminating", "message": f"PodGroup train-0: {job_details.GOING}", "pod": "", "pods": 4}
    ]


def test_pods_that_wait_for_their_pod_group_show_its_message() -> None:
    group = GroupView(resource=POD_GROUPS, namespace="b", name="train-0", uid="g", job_uid="u", attempt=1,
                      message="there is not enough room for the gang")  # fmt: skip
    found = of_worker(item(), groups=(group,))
    assert found["why"] == [
        {"reason": "PodGroupPending", "message": "there is not enough room for the gang", "pod": "", "pods": 4}
    ]


def test_missing_pods_show_the_reason_that_blocks_the_job() -> None:
    told = {"type": "Admitted", "status": "True", "reason": "GangQueueClosed", "message": "it is closed",
            "lastTransitionTime": NOW}  # fmt: skip
    assert of_worker(item(conditions=[told]))["why"][0]["reason"] == "GangQueueClosed"


def unbound(index: int, reason: str, message: str) -> dict[str, Any]:
    return pod(index=index, node="", conditions=[{**unscheduled(message)[0], "reason": reason}])


def test_pods_that_only_wait_for_their_gang_are_left_out_where_one_has_a_cause() -> None:
    fits = [unbound(each, "Schedulable", "2/4 tasks in gang unschedulable") for each in (0, 1)]
    waits = unbound(2, "Unschedulable", "waiting for minCount pods from a gang to be scheduled")
    cause = unbound(3, "Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu")
    master = pod("master", node="", conditions=fits[0]["status"]["conditions"])
    document = job_details.describe(item(), JobContext(pods=(master, *fits, waits, cause)))
    told = [(each["reason"], each["pod"], each["message"]) for task in document["tasks"] for each in task["why"]]
    assert told == [("Unschedulable", "train-worker-3", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu")]
    why = cli_text.format_why(cli_text.describe_settled(item(), document["tasks"]))
    assert "does not run: Unschedulable" in why
    assert of_worker(item(), *fits)["why"][0]["reason"] == "Schedulable", "no other reason is known"


def test_why_begins_with_the_most_telling_reason_of_all_tasks() -> None:
    master = pod("master", node="")
    worker = unbound(0, "Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu")
    document = job_details.describe(item(), JobContext(pods=(master, worker)))
    assert cli_text.describe_settled(item(), document["tasks"])["code"] == "Unschedulable"
    told = {"type": "Admitted", "status": "True", "reason": "GangNotWhole", "message": "1 pod has none",
            "lastTransitionTime": NOW}  # fmt: skip
    assert cli_text.describe_settled(item(conditions=[told]), document["tasks"])["code"] == "GangNotWhole"


def test_why_names_the_store_without_a_node_and_not_the_workers_at_their_gates() -> None:
    gate = [{"name": containers.GATE, "state": {"running": {}}}]
    workers = [pod(index=each, initContainerStatuses=gate) for each in range(4)]
    store = pod("rendezvous", node="")
    found = item()
    found["spec"]["torchTaskSpecs"]["Rendezvous"] = {**task(), "auxiliary": True}
    document = job_details.describe(found, JobContext(pods=(store, *workers)))
    why = cli_text.format_why(cli_text.describe_settled(found, document["tasks"]))
    assert "Rendezvous: 1 Pending (train-rendezvous-0): not bound to a node yet" in why
    assert "StartGate" not in why


def test_why_and_show_have_the_reason_of_a_running_job_whose_pods_lack_nodes() -> None:
    told = {"type": "Running", "status": "True", "reason": "GangNotWhole", "message": "1 pod has none",
            "lastTransitionTime": NOW}  # fmt: skip
    for text, words in zip(
        shown(item(phase="Running", conditions=[told]), datetime(2026, 1, 1, tzinfo=UTC)),
        ("Waits:      GangNotWhole: 1 pod has none", "does not wait: GangNotWhole"),
        strict=True,
    ):
        assert words in text
        assert "1 pod has none" in text


def test_an_invalid_job_is_shown_without_tasks() -> None:
    found = item()
    found["spec"]["torchTaskSpecs"]["Worker"]["dependsOn"] = [{"taskType": "Worker"}]
    assert job_details.describe(found, JobContext())["tasks"] == []


def test_only_the_latest_events_are_shown_in_order_of_time() -> None:
    told = [{"reason": str(each), "lastTimestamp": f"2026-01-01T00:00:{each:02}Z"} for each in range(20, 0, -1)]
    found = job_details.describe(item(), JobContext(events=tuple(told)))["events"]
    assert [each["reason"] for each in found] == [str(each) for each in range(11, 21)]


def test_events_of_one_second_are_shown_in_the_order_in_which_they_were_written() -> None:
    written = {"JobResumed": "99", "Admitted": "100", "Running": "101"}
    told = [
        {"reason": reason, "lastTimestamp": NOW, "metadata": {"resourceVersion": written[reason]}}
        for reason in sorted(written, reverse=True)
    ]
    found = job_details.describe(item(), JobContext(events=tuple(told)))["events"]
    assert [each["reason"] for each in found] == [*written]


def test_events_are_shown_with_who_says_that_it_wrote_them() -> None:
    told = [
        {"reason": "Running", "reportingComponent": "torchq", "source": {"component": "torchq"}},
        {"reason": "Pulled", "source": {"component": "kubelet", "host": "n1"}},
        {"reason": "Scheduled", "reportingComponent": "scheduler", "reportingInstance": "s-0"},
        {"reason": "Fake"},
    ]
    document = job_details.describe(item(), JobContext(events=tuple(told)))
    assert [each["from"] for each in document["events"]] == ["torchq", "kubelet on n1", "scheduler on s-0", "unknown"]
    text = job.format_job(item(), document, ())
    header, *rows = [line.split("   ") for line in text.partition("EVENT")[2].splitlines()]
    assert [cell.strip() for cell in header if cell] == ["FROM", "REASON", "MESSAGE"]
    assert [[cell.strip() for cell in row if cell] for row in rows][1] == ["-", "kubelet on n1", "Pulled"]


def test_job_show_and_why_print_restarts_gang_tasks_and_events(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    volcano_crds.install(embedded_cluster)
    made = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)["metadata"]
    status = {"phase": "Admitted", "admission": ADMISSION | {"gangScheduler": "volcano"}, "restartCount": 2,
              "disruptions": 1, "excludedNodes": ["bad"]}  # fmt: skip
    embedded_cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")
    marks = {labels.JOB_UID: made["uid"], labels.JOB_NAME: "train"}
    own = [owner(JobKey(namespace, "train", made["uid"]))]
    for name, owners in (("train-0", own), ("somebodys", [])):
        named = {"name": name, "labels": marks, "ownerReferences": owners}
        group = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": named}
        embedded_cluster.create(POD_GROUPS, {**group, "spec": {"minMember": 2}}, namespace)
    body = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "torch", "image": "none"}]}}
    metadata: dict[str, Any] = {"name": "train-master-0", "labels": marks | {labels.TASK_TYPE: "master"}}
    metadata["ownerReferences"] = own
    embedded_cluster.create(PODS, {**body, "metadata": metadata}, namespace)
    told = {"containerStatuses": waiting("ImagePullBackOff", "no such image")}
    told["containerStatuses"][0] |= {"image": "", "imageID": "", "ready": False, "restartCount": 0}
    embedded_cluster.patch(PODS, "train-master-0", {"status": told}, namespace, subresource="status")
    about = {"kind": "TorchJob", "namespace": namespace, "name": "train", "uid": made["uid"]}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "told"}, "involvedObject": about}
    embedded_cluster.create(
        EVENTS, {**event, "reason": "Restarting", "message": "worker 1 failed", "lastTimestamp": NOW}, namespace
    )
    said = torchq("job", "show", "train").output
    assert "Restarts:   2 of 6, 1 not its fault\n" in said
    assert "Avoids:     bad " in said
    assert "Gang:       volcano, train-0 Pending (Volcano has not let the group in yet)\n" in said
    assert "Master: 1 Pending (train-master-0): not bound to a node yet" not in said
    assert "Master: 1 ImagePullBackOff (train-master-0): no such image\n" in said
    assert "Worker: 1 PodGroupPending: Volcano has not let the group in yet" in said
    assert "Restarting   worker 1 failed" in said
    found = json.loads(torchq("job", "show", "train", "-o", "json").output)
    assert found["metadata"]["uid"] == made["uid"]
    assert found["details"]["groups"][0]["name"] == "train-0"
    assert [each["short"] for each in found["details"]["tasks"]] == [True, True]
    why = torchq("job", "why", "train").output
    assert "holds its room, but does not run: ImagePullBackOff" in why
    assert "  Worker: 1 PodGroupPending: Volcano has not let the group in yet\n" in why


def test_why_says_what_the_status_says_where_the_coordinator_tells_this_account_nothing(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str, _namespace: str) -> Any:
        raise api_client.Withheld("the coordinator tells this account nothing")

    embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)
    body = {
        "status": {"phase": "Queued", "queue": {"reason": "WaitingForQuota", "message": "queue a has no quota left"}}
    }
    embedded_cluster.patch(TORCHJOBS, "train", body, namespace, subresource="status")
    monkeypatch.setattr(api_client, "coordinator", lambda _: refuse)
    said = torchq("job", "why", "train")
    assert said.stdout.splitlines()[:2] == [
        f"job {namespace}/train waits in queue a: WaitingForQuota",
        "  queue a has no quota left",
    ]
    assert said.stderr == "note: the coordinator tells this account nothing\n"


def test_why_says_that_the_nodes_no_longer_hold_an_admitted_job(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)
    body = {"status": {"phase": "Admitted", "admission": ADMISSION}}
    embedded_cluster.patch(TORCHJOBS, "train", body, namespace, subresource="status")
    findings = [{"code": "ExceedsNodes", "field": "f", "message": "a pod asks for 8 of cpu", "firm": False}]
    monkeypatch.setattr(api_client, "coordinator", lambda _: lambda *_: {"findings": findings})
    assert "  the nodes no longer hold it: a pod asks for 8 of cpu\n" in torchq("job", "why", "train").output


@pytest.mark.parametrize(("phase", "reason"), [("Pending", "GangQueueClosed"), ("Running", "")])
def test_job_show_names_a_missing_gang_queue_whether_or_not_the_gang_runs(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, phase: str, reason: str
) -> None:
    volcano_crds.install(embedded_cluster)
    made = embedded_cluster.create(TORCHJOBS, manifest("train", "a"), namespace)["metadata"]
    status = {"phase": "Admitted", "admission": ADMISSION | {"gangScheduler": "volcano"}}
    embedded_cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")
    own = [owner(JobKey(namespace, "train", made["uid"]))]
    metadata = {"name": "train-0", "labels": {labels.JOB_UID: made["uid"]}, "ownerReferences": own}
    group = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": metadata}
    body = {**group, "spec": {"minMember": 2, "queue": "nowhere"}, "status": {"phase": phase}}
    embedded_cluster.create(POD_GROUPS, body, namespace)
    words = "Volcano has no queue nowhere: create it, or name another one in spec.schedulingPolicy.gangQueue"
    assert words in torchq("job", "show", "train").output
    why = torchq("job", "why", "train").output
    assert ("GangQueueMissing" in why and words in why) is bool(reason)


TRAIN = {"image": "pytorch:2", "command": ["python", "-u"], "args": ["my train.py"]}


@pytest.mark.parametrize(
    ("container", "embedded", "expected"),
    [
        (TRAIN, True, ("pytorch:2", ["python", "-u", "my train.py"], "/home/ann")),
        (TRAIN, False, ("pytorch:2", ["python", "-u", "my train.py"], "")),
        (TRAIN | {"workingDir": "/work"}, True, ("pytorch:2", ["python", "-u", "my train.py"], "/work")),
        (TRAIN | {"workingDir": "/work"}, False, ("pytorch:2", ["python", "-u", "my train.py"], "/work")),
        ({}, False, ("", [], "")),
        ({"image": 5, "command": {"a": 1}, "args": [7, None]}, False, ("5", ["7", "None"], "")),
    ],
)
def test_job_show_prints_image_command_and_folder_of_a_task(
    container: dict[str, Any], embedded: bool, expected: tuple[Any, ...]
) -> None:
    found = item()
    found["metadata"]["annotations"] = {labels.SUBMIT_DIRECTORY: "/home/ann"}
    found["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"] = [
        {"name": "log", "image": "other"},
        {"name": "torch", **container},
    ]
    document = job_details.describe(found, JobContext(embedded=embedded))
    task = document["tasks"][0]
    assert (task["image"], task["command"], task["folder"]) == expected
    lines = job.format_job(found, document, ()).splitlines()
    header = next(number for number, line in enumerate(lines) if line.split() == ["TASK", "IMAGE", "FOLDER", "COMMAND"])
    image, command, folder = expected
    shown = ["Master", image or "-", folder or "-", shlex.join(command) or "-"]
    assert lines[header + 1].split(maxsplit=3) == shown


def test_who_submitted_a_job_is_shown_beside_the_time() -> None:
    found = item()
    assert f"\nSubmitted:  {NOW}\n" in job.format_job(found, job_details.describe(found, JobContext()), ())
    found["metadata"]["annotations"] = {labels.SUBMITTED_BY: "ann\x1b[2J"}
    shown = job.format_job(found, job_details.describe(found, JobContext()), ())
    assert f"\nSubmitted:  {NOW} by ann\\x1b[2J\n" in shown


def test_a_long_command_is_cut_between_words() -> None:
    found = item()
    container = found["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["command"] = [
        "python",
        "-c",
        "first line\nsecond line",
        *(f"--option-number-{each}" for each in range(9)),
    ]
    shown = job.format_job(found, job_details.describe(found, JobContext()), ())
    assert "python -c 'first line second line' --option-number-0 --option-number-1 ..." in shown
    container["command"] = ["/" + "long/" * 40 + "train.py", "--fast"]
    assert "/" + "long/" * 40 + "train.py ..." in job.format_job(found, job_details.describe(found, JobContext()), ())


def test_why_prints_the_message_of_a_condition_once() -> None:
    hindered = {"type": "Admitted", "status": "True", "reason": "PodsForbidden", "message": "no quota"}
    found = item(conditions=[{**hindered, "lastTransitionTime": NOW}])
    said = cli_text.format_why(cli_text.describe_settled(found, job_details.describe(found, JobContext())["tasks"]))
    assert "holds its room, but does not run: PodsForbidden" in said
    assert said.count("no quota") == 1


def test_why_prints_the_problem_of_the_last_try_of_a_job_that_waits_again() -> None:
    late = {"type": "Queued", "status": "True", "reason": "NotRunningInTime", "message": "ErrImagePull"}
    found = item(phase="Queued", admission=None, conditions=[{**late, "lastTransitionTime": NOW}])
    assert "  its last try: ErrImagePull\n" in cli_text.format_why(
        cli_text.describe_waiting(found, {"state": "absent"})
    )
    found["status"]["conditions"][0]["status"] = "False"
    assert "last try" not in cli_text.format_why(cli_text.describe_waiting(found, {"state": "absent"}))


def test_show_and_why_say_that_a_running_job_hangs() -> None:
    hang = {"since": NOW, "run": "1", "behind": ["train-worker-1"], "silent": ["train-worker-0", "train-worker-1"]}
    lists = "furthest behind: train-worker-1; silent: train-worker-0, train-worker-1"
    sentence = f"no pod makes a step since {NOW}; {lists}"
    show, why = shown(item(phase="Running", hang=hang), datetime(2026, 1, 1, tzinfo=UTC))
    assert f"Hangs:      {sentence}\n" in show
    assert "does not wait: Hanging" in why
    assert sentence in why
    calm = shown(item(phase="Running"), datetime(2026, 1, 1, tzinfo=UTC))
    assert not any("Hang" in text for text in calm)


@pytest.mark.parametrize(
    ("in_place", "embedded", "said"),
    [
        ({"driver": "kubernetes"}, False, "restarts by Kubernetes"),
        ({"driver": "kruise", "message": "node n2 is old"}, False, "restarts by OpenKruise (node n2 is old)"),
        ({"driver": "recreate", "message": "no sh", "settled": True}, False, "new pods instead (no sh)"),
        (None, False, "new pods instead"),
        (None, True, "restarts by the node"),
    ],
)
def test_job_show_names_what_restarts_in_place_and_why(
    in_place: dict[str, Any] | None, embedded: bool, said: str
) -> None:
    found = item(**({} if in_place is None else {"inPlace": in_place}))
    document = job_details.describe(found, JobContext(embedded=embedded))
    assert f"\nIn place:   {said}\n" in job.format_job(found, document, ())
    found["status"] = {"phase": "Queued"}
    assert "driver" not in job_details.describe(found, JobContext(embedded=embedded))["restarts"]


def backing_off(*pods: str, **status: Any) -> dict[str, Any]:
    until = {"restartNotBefore": "2026-01-01T00:01:00Z", "restartCount": 3}
    return item(**until, **({"backingOff": list(pods)} if pods else {}), **status)


def shown(found: dict[str, Any], now: datetime) -> tuple[str, str]:
    document = job_details.describe(found, JobContext(now=now))
    until = document["restarts"].get("notBefore", "")
    settled = cli_text.describe_settled(found, document["tasks"], until)
    return job.format_job(found, document, ()), cli_text.format_why(settled)


def test_a_job_in_back_off_shows_when_its_pods_return() -> None:
    early, late = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC), datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
    show, why = shown(backing_off(), early)
    assert "3 of 6, the next at 2026-01-01T00:01:00Z (back-off)" in show
    assert "Worker: 4 BackOff: failed pods are created again at 2026-01-01T00:01:00Z" in show
    assert "does not run: BackOff" in why
    assert "  back-off until 2026-01-01T00:01:00Z; torchq job restart b/train ends it" in why
    hung = {"type": "Admitted", "status": "True", "reason": "Hanging", "message": "no step", "lastTransitionTime": NOW}
    assert "Worker: 4 BackOff" in shown(backing_off(conditions=[hung]), early)[0]
    for text in shown(backing_off(), late):
        assert "back-off" not in text.lower()


@pytest.mark.parametrize(
    ("charge", "said"),
    [
        ({"nvidia.com/gpu": 8, "cpu": 64_000}, "14.00 GPU-hours in 2 attempts"),
        ({"cpu": 500}, "0.88 CPU-hours in 2 attempts"),
        ({"cpu": 5}, "31.5 CPU-seconds in 2 attempts"),
        ({"pods": 2, "jobs": 1}, "3.50 pod-hours in 2 attempts"),
    ],
)
def test_what_a_job_has_held_is_shown_until_now(charge: dict[str, int], said: str) -> None:
    hold = {"number": 1, "queue": "a", "attempt": 1, "charge": charge, "ended": "Suspended"}
    hold |= {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:30:00Z"}
    admission = {"queue": "a", "attempt": 2, "epoch": 1, "charge": charge, "admittedAt": "2026-01-01T02:00:00Z"}
    found = item(holds=[hold], admission=admission, attempt=2)
    document = job_details.describe(found, JobContext(now=datetime(2026, 1, 1, 2, 15, tzinfo=UTC)))
    assert f"\nHeld:       {said}\n" in job.format_job(found, document, ())


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"admission": ADMISSION | {"admittedAt": "yesterday"}}, id="no time"),
        pytest.param({"admission": ADMISSION | {"charge": {"cpu": "4"}}}, id="a charge in text"),
        pytest.param({"holds": [{"number": 1}]}, id="a hold without times"),
    ],
)
def test_a_job_is_shown_though_what_it_has_held_cannot_be_read(odd: dict[str, Any]) -> None:
    document = job_details.describe(item(**odd), JobContext(now=datetime(2026, 1, 2, tzinfo=UTC)))
    assert document["held"] is None
    assert "\nPhase:" in job.format_job(item(**odd), document, ())


def test_only_the_failed_task_shows_back_off() -> None:
    early = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    found = of_worker(backing_off("train-worker-1"), now=early)
    assert [each["reason"] for each in found["why"]] == ["BackOff"]
    assert [each["reason"] for each in of_worker(backing_off("train-master-0"), now=early)["why"]] == ["NotMade"]
    _, why = shown(backing_off("train-worker-1", phase="Running"), early)
    assert "does not wait: Running" in why
    assert "back-off until 2026-01-01T00:01:00Z" in why


def test_json_output_names_the_pods_in_back_off() -> None:
    found = job_details.describe(backing_off("train-worker-1"), JobContext(now=datetime(2026, 1, 1, tzinfo=UTC)))[
        "restarts"
    ]
    assert (found["notBefore"], found["waiting"]) == ("2026-01-01T00:01:00Z", ["train-worker-1"])


@pytest.mark.parametrize(
    ("status", "policy", "text"),
    [
        ({"workers": 4}, {"autoscale": "Off"}, ""),
        ({"workers": 4}, {}, "4 workers: 4 wanted; min 2, max 8"),
        (
            {"workers": 6, "idle": 2, "target": {"workers": 6, "reason": "Idle", "since": NOW, "wish": 4}},
            {},
            f"6 workers: 4 wanted, 2 idle growth since {NOW}; min 2, max 8",
        ),
        (
            {
                "workers": 6,
                "idle": 2,
                "resized": {"at": NOW},
                "target": {"workers": 4, "reason": "GiveBack", "message": "for team/big", "since": NOW, "wish": 4},
            },
            {"autoscale": "Off"},
            f"6 workers: 4 wanted, 2 idle growth since {NOW}; min 2, max 8; to become 4: for team/big",
        ),
    ],
)
def test_the_size_of_a_job_names_what_its_owner_wants_and_what_is_idle_growth(
    status: dict[str, Any], policy: dict[str, Any], text: str
) -> None:
    given = {"numMinReplicas": 2, "numMaxReplicas": 8, "autoscale": "Idle", **policy}
    item = manifest("train", "a", tasks={"Worker": task(4)}, torchElasticPolicy=given)
    counts = {name: status.pop(name) for name in ("workers", "idle") if name in status}
    item["status"] = {"phase": "Running", "admission": {**ADMISSION, **counts}, **status}
    size = job_growth.size_of(item)
    assert (job_growth.format_size(size) if size else "") == text


def test_job_show_tells_how_far_the_training_is() -> None:
    item = manifest("train") | {"status": {"phase": "Running"}}
    item["metadata"] |= {"namespace": "team", "uid": "u1", "creationTimestamp": NOW}
    reports = {
        "step": 1200,
        "since": NOW,
        "stepsPerSecond": 2.12345,
        "samplesPerSecond": 134.0,
        "reportedAt": "2026-01-01T00:00:09Z",
        "pods": [{}, {}],
    }

    def shown(training: dict[str, Any]) -> list[str]:
        document = job_details.describe(item, JobContext()) | {"training": training}
        return [line for line in job.format_job(item, document, ()).splitlines() if line.startswith("Training")]

    speeds = "2.123 steps/s, 134 samples/s"
    assert shown(reports) == [
        f"Training:   step 1200 since {NOW}, {speeds}, last report at 2026-01-01T00:00:09Z (2 pods)"
    ]
    assert shown({"unknown": "no coordinator answers"}) == ["Training:   unknown: no coordinator answers"]
    assert shown({"pods": []}) == shown({}) == []


def test_job_show_names_the_models_that_a_job_trains_and_reads() -> None:
    item = manifest("train") | {"status": {"phase": "Running"}}
    item["metadata"] |= {"namespace": "team", "uid": "u1", "creationTimestamp": NOW}
    document = job_details.describe(item, JobContext())
    assert "Models" not in dict(job_facts.facts(item, document))
    inputs = [{"modelName": name, "version": "3f2a1", "path": "team/x/model"} for name in ("base", "tokens")]
    item["spec"] |= {"modelOutput": {"modelName": "digits"}, "modelInputs": inputs}
    assert dict(job_facts.facts(item, document))["Models"] == "trains digits; reads base@3f2a1, tokens@3f2a1"


def test_wide_output_has_ranks_of_pods_and_labels_of_their_nodes() -> None:
    item = manifest("train") | {"metadata": {"name": "train", "namespace": "a", "uid": "u", "creationTimestamp": NOW}}
    placed, plain, met = pod("worker", 1), pod("master"), pod("worker", 2)
    placed["metadata"]["annotations"] = {labels.RANK: "2", labels.TOPOLOGY: "rack=r1,host=h2"}
    plain["spec"]["containers"][1]["env"] = [{"name": "RANK", "value": "0"}]
    document = job_details.describe(item, JobContext(pods=(placed, plain, met)))
    shown = job.format_job(item, document, (placed, plain, met), wide=True)
    rows = [line.split() for line in shown.splitlines() if line.startswith(("POD", "train-"))]
    assert [(row[0], *row[-2:]) for row in rows] == [
        ("POD", "RANK", "LABELS"),
        ("train-worker-1", "2", "rack=r1,host=h2"),
        ("train-master-0", "0", "-"),
        ("train-worker-2", "-", "-"),
    ]
    assert "RANK" not in job.format_job(item, document, (placed, plain, met))


def test_pods_that_have_left_their_nodes_are_named() -> None:
    metadata = {"name": "train", "namespace": "a", "uid": "u", "creationTimestamp": NOW}
    departed = {"train-worker-1": {"node": "n2", "since": NOW}}
    item = manifest("train") | {"metadata": metadata, "status": {"phase": "Running", "departed": departed}}
    shown = job.format_job(item, job_details.describe(item, JobContext()), ())
    assert "Moves:      train-worker-1 left their nodes or were preempted" in shown
