"""Gangs and the start order of their tasks, on a cluster whose scheduler supports the PodGroups of Volcano."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.api_resources import COSCHEDULING_POD_GROUPS, GANG_QUEUES, POD_GROUPS
from kube import errors
from kube.api import Manifest
from tests.support.acceptance.jobs import job, python, recording, spans
from tests.support.acceptance.stack import Stack, fresh, until


def gang(name: str, command: list[str], workers: int = 2, **fields: Any) -> dict[str, Any]:
    """Return a job that Volcano binds and whose workers start after its master."""
    body = job(name, command, workers=workers, **fields)
    body["spec"]["schedulingPolicy"]["gangScheduler"] = "volcano"
    body["spec"]["torchTaskSpecs"].get("Worker", {}).pop("dependsOn", None)
    return body


def groups(stack: Stack, name: str) -> dict[str, Manifest]:
    found = stack.api.list(POD_GROUPS, "default", label_selector=f"{labels.JOB_NAME}={name}").items
    return {each["metadata"]["name"]: each for each in found}


def said(stack: Stack, name: str) -> str:
    """Return the reason of the condition Admitted of a job."""
    found = (stack.job(name).get("status") or {}).get("conditions") or ()
    return next((str(each["reason"]) for each in found if each["type"] == "Admitted"), "")


def queue_reason(stack: Stack, name: str) -> str:
    """Return the reason why a job waits in its queue."""
    queue = (stack.job(name).get("status") or {}).get("queue") or {}
    return str(queue.get("reason", ""))


def test_a_gang_starts_its_workers_after_its_master(stack: Stack, records: Path, tmp_path: Path) -> None:
    name, gate = fresh("gang"), tmp_path / "gate"
    stack.submit(gang(name, recording(records, gate=gate), minMembers={"Worker": 1}))
    stack.reach(name, "Running")
    (group,) = groups(stack, name).values()
    assert group["metadata"]["name"] == f"{name}-0"
    spec = group["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (2, {"master": 1, "worker": 1})
    assert spec["minResources"] == {"cpu": "2"}
    assert stack.admission(name)["gangScheduler"] == "volcano"
    pods = {each["metadata"]["name"]: each for each in stack.pods(name)}
    assert all(each["spec"]["schedulerName"] == "volcano" for each in pods.values())
    assert "initContainers" not in pods[f"{name}-master-0"]["spec"]
    assert [each["name"] for each in pods[f"{name}-worker-1"]["spec"]["initContainers"]] == ["torchq-start"]
    until(lambda: len(spans_begun(records)) == 3)
    starts = until(lambda: started(stack, name), lambda found: len(found) == 3)
    assert starts[f"{name}-master-0"] == min(starts.values())
    gate.touch()
    stack.reach(name, "Succeeded")
    until(lambda: not groups(stack, name))


def started(stack: Stack, name: str) -> dict[str, str]:
    """Return when the node started the main container of each running pod. The order in which the outputs of the pods
    arrive is random.
    """
    statuses = {each["metadata"]["name"]: each["status"].get("containerStatuses") or [] for each in stack.pods(name)}
    return {pod: found[0]["state"]["running"]["startedAt"] for pod, found in statuses.items() if _runs(found)}


def _runs(found: list[dict[str, Any]]) -> bool:
    return bool(found) and "running" in found[0]["state"]


def spans_begun(records: Path) -> list[str]:
    return [file.name for file in records.iterdir()]


def test_all_pods_of_a_gang_are_bound_before_its_workers_start(stack: Stack, tmp_path: Path) -> None:
    name, gate = fresh("gang"), tmp_path / "gate"
    body = gang(name, python("pass"))
    # An init container of the master keeps it from running.
    hold = {"name": "hold", "image": "none", "command": ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done"]}
    body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["initContainers"] = [hold]
    stack.submit(body)
    bound = until(
        lambda: [each for each in stack.pods(name) if each["spec"].get("nodeName")], lambda pods: len(pods) == 3
    )
    assert {each["status"]["phase"] for each in bound} == {"Pending"}
    assert not [each for each in stack.pods(name) if labels.START in each["metadata"]["annotations"]]
    gate.touch()
    stack.reach(name, "Succeeded")


def test_a_job_with_stages_has_a_pod_group_for_each_stage(stack: Stack, records: Path, tmp_path: Path) -> None:
    name, gate = fresh("gang"), tmp_path / "gate"
    body = gang(name, recording(records, gate=gate), workers=1)
    tasks = body["spec"]["torchTaskSpecs"]
    plain = {"restartPolicy": "Never", "template": tasks["Master"]["template"]}
    tasks["Prepare"] = plain | {"numTasks": 2}
    tasks["Master"]["dependsOn"] = [{"taskType": "Prepare", "phase": "Succeeded"}]
    tasks["Evaluate"] = plain | {"dependsOn": [{"taskType": "Master", "phase": "Succeeded"}]}
    seen: dict[str, Any] = {}

    def look() -> str:
        seen.update({each: found["spec"]["minMember"] for each, found in groups(stack, name).items()})
        return stack.phase(name)

    stack.submit(body)
    until(look, lambda phase: phase == "Running")
    assert set(seen) == {f"{name}-0"}
    gate.touch()
    until(look, lambda phase: phase in ("Succeeded", "Failed"))
    assert stack.phase(name) == "Succeeded", stack.job(name)["status"]
    assert seen == {f"{name}-0": 2, f"{name}-1": 2, f"{name}-2": 1}
    assert stack.admission(name)["charge"]["cpu"] == 3000, "the worker may still exist when the evaluation begins"
    runs = {each.pod.removeprefix(f"{name}-"): each for each in spans(records)}
    assert max(runs[f"prepare-{each}"].ends[-1] for each in (0, 1)) <= runs["master-0"].starts[0]
    assert runs["master-0"].starts[0] <= runs["worker-0"].starts[0]
    assert runs["master-0"].ends[-1] <= runs["evaluate-0"].starts[0]
    assert set(stack.job(name)["status"]["stages"]) == {"1", "2"}
    until(lambda: not groups(stack, name))


def test_without_a_gang_scheduler_workers_start_after_their_master(stack: Stack, records: Path) -> None:
    name = fresh("dag")
    body = gang(name, recording(records))
    body["spec"]["schedulingPolicy"]["gangScheduler"] = "none"
    stack.submit(body)
    stack.reach(name, "Succeeded")
    starts = {each.pod: each.starts[0] for each in spans(records)}
    assert min(starts, key=starts.__getitem__) == f"{name}-master-0"
    assert not groups(stack, name)
    assert not [each for each in stack.pods(name) if "initContainers" in each["spec"]]


def test_gangs_larger_together_than_the_node_all_succeed(stack: Stack, records: Path) -> None:
    sizes = [2, 4, 1, 3, 2]
    names = [fresh("gang") for _ in sizes]
    stack.submit(*(gang(name, recording(records), workers=size - 1) for name, size in zip(names, sizes, strict=True)))
    for name in names:
        stack.reach(name, "Succeeded")
    assert len(spans(records)) == sum(sizes)


@pytest.fixture
def gang_queue(stack: Stack) -> Iterator[str]:
    """Yield the name of a closed Volcano queue."""
    name = fresh("research")
    body = {"apiVersion": GANG_QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
    stack.api.create(GANG_QUEUES, body)
    set_state(stack, name, "Closed")
    yield name
    stack.api.delete(GANG_QUEUES, name)


def set_state(stack: Stack, name: str, state: str) -> None:
    stack.api.patch(GANG_QUEUES, name, {"status": {"state": state}}, subresource="status")


def test_a_closed_gang_queue_is_the_reason_of_a_waiting_job(stack: Stack, gang_queue: str) -> None:
    name = fresh("gang")
    body = gang(name, python("pass"))
    body["spec"]["schedulingPolicy"]["gangQueue"] = gang_queue
    stack.submit(body)
    # The leader may have picked the job before it saw that the queue was closed.
    until(lambda: said(stack, name) == "GangQueueClosed" or queue_reason(stack, name) == "WaitingForGangQueue")
    assert not stack.pods(name)
    set_state(stack, gang_queue, "Open")
    stack.reach(name, "Succeeded")
    assert said(stack, name) != "GangQueueClosed"


def test_a_missing_gang_queue_is_the_reason_of_a_waiting_job(stack: Stack) -> None:
    name = fresh("gang")
    body = gang(name, python("pass"))
    body["spec"]["schedulingPolicy"]["gangQueue"] = "nowhere"
    stack.submit(body)
    until(lambda: queue_reason(stack, name) == "WaitingForGangQueue")
    assert "nowhere" in stack.job(name)["status"]["queue"]["message"]
    assert not stack.pods(name)


def test_a_template_with_another_scheduler_is_the_reason_of_a_waiting_job(stack: Stack) -> None:
    name = fresh("gang")
    body = gang(name, python("pass"))
    body["spec"]["torchTaskSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    stack.submit(body)
    until(lambda: said(stack, name) == "GangSchedulerMismatch")
    assert not stack.pods(name)
    assert not groups(stack, name)


def test_a_deleted_pod_group_is_created_again(stack: Stack, records: Path, tmp_path: Path) -> None:
    name, gate = fresh("gang"), tmp_path / "gate"
    stack.submit(gang(name, recording(records, gate=gate)))
    stack.reach(name, "Running")
    uid = groups(stack, name)[f"{name}-0"]["metadata"]["uid"]
    stack.api.delete(POD_GROUPS, f"{name}-0", "default")
    found = until(lambda: groups(stack, name).get(f"{name}-0"))
    assert found["metadata"]["uid"] != uid
    before = {each["metadata"]["uid"] for each in stack.pods(name)}
    gate.touch()
    stack.reach(name, "Succeeded")
    assert {each["metadata"]["uid"] for each in stack.pods(name)} <= before


def test_a_missing_pod_group_kind_is_the_reason_of_a_waiting_job(stack: Stack) -> None:
    name = fresh("gang")
    body = gang(name, python("pass"))
    body["spec"]["schedulingPolicy"]["gangScheduler"] = "coscheduling"
    stack.submit(body)
    until(lambda: said(stack, name) == "PodGroupMissing")
    found = next(each for each in stack.job(name)["status"]["conditions"] if each["type"] == "Admitted")
    assert "spec.schedulingPolicy.gangScheduler" in found["message"]
    with pytest.raises(errors.NotFound):
        stack.api.list(COSCHEDULING_POD_GROUPS, "default")
