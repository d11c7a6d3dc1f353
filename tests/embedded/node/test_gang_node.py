"""PodGroups on an embedded cluster with a node."""

import itertools
from typing import Any

from crds.api_resources import GANG_QUEUES, NODES, POD_GROUPS
from embedded.scheduler import podgroups
from embedded.scheduler.scheduler import PodGroupCache
from tests.support.embedded.stage import Stage
from tests.support.waiting import SECONDS, until

SLEEP = ("sleep", "600")
_NUMBERS = itertools.count(1)


def make_group(stage: Stage, minimum: int, **spec: Any) -> str:
    name = f"group-{next(_NUMBERS)}"
    body = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"name": name},
        "spec": {"minMember": minimum, **spec},
    }
    stage.cluster.create(POD_GROUPS, body, "default")
    return name


def make_member(stage: Stage, group: str, *command: str, cpu: str = "1", task: str = "worker") -> str:
    annotations = {"scheduling.k8s.io/group-name": group, "volcano.sh/task-spec": task}
    container = {"resources": {"requests": {"cpu": cpu}}}
    return stage.run(
        *(command or SLEEP), container=container, metadata={"annotations": annotations}, schedulerName="volcano"
    )


def get(stage: Stage, group: str) -> dict[str, Any]:
    return stage.cluster.get(POD_GROUPS, group, "default")


def wait_group(stage: Stage, group: str, **expected: Any) -> dict[str, Any]:
    found = until(
        lambda: get(stage, group).get("status", {}),
        lambda status: all(status.get(name) == value for name, value in expected.items()),
    )
    assert isinstance(found, dict)
    return found


def reason(status: dict[str, Any]) -> str:
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Unschedulable", "True")
    return str(condition["reason"])


def test_a_gang_runs_when_all_its_pods_exist_and_stays_completed_after_their_deletion(stage: Stage) -> None:
    group = make_group(stage, 2, minTaskMember={"worker": 2}, minResources={"cpu": "2"})
    assert reason(wait_group(stage, group, phase="Inqueue")) == "NotEnoughTasks"
    first = make_member(stage, group, "sleep", "0.5")
    stage.wait(first, lambda status: "not all of the group's 2 pods exist" in str(status.get("conditions")))
    second = make_member(stage, group, "sleep", "0.5")
    assert wait_group(stage, group, phase="Running")["conditions"] == []
    for name in (first, second):
        stage.phase(name, "Succeeded")
    wait_group(stage, group, phase="Completed", running=0, succeeded=2)
    version = get(stage, group)["metadata"]["resourceVersion"]
    for name in (first, second):
        stage.delete(name)
        stage.wait_gone(name)
    other = stage.run("true")  # the scheduler handles this pod after the deletions
    stage.phase(other, "Succeeded")
    assert get(stage, group)["metadata"]["resourceVersion"] == version


def test_one_of_two_large_gangs_waits_until_the_other_has_gone(stage: Stage) -> None:
    groups = [make_group(stage, 2) for _ in range(2)]
    pods = {group: [make_member(stage, group, cpu="3") for _ in range(2)] for group in groups}
    running = until(lambda: [group for group in groups if get(stage, group).get("status", {}).get("running") == 2])
    (first,) = running
    (second,) = set(groups) - {first}
    until(lambda: reason(wait_group(stage, second, phase="Inqueue")), lambda word: word == "NotEnoughResources")
    assert not any(stage.get(name)["spec"].get("nodeName") for name in pods[second])
    for name in pods[first]:
        stage.delete(name, grace=0)
    wait_group(stage, second, phase="Running", running=2)
    for name in pods[second]:
        stage.delete(name, grace=0)
        stage.wait_gone(name)


def test_a_group_waits_for_its_queue_and_a_pod_for_its_group(stage: Stage) -> None:
    orphan = make_member(stage, "nowhere")
    stage.wait(orphan, lambda status: "there is no PodGroup nowhere" in str(status.get("conditions")))
    stage.delete(orphan)
    stage.wait_gone(orphan)
    group = make_group(stage, 1, queue="closed")
    member = make_member(stage, group)
    assert reason(wait_group(stage, group, phase="Pending")) == "QueueNotOpen"
    stage.wait(member, lambda status: "the queue closed does not exist" in str(status.get("conditions")))
    body = {"apiVersion": GANG_QUEUES.api_version, "kind": GANG_QUEUES.kind, "metadata": {"name": "closed"}, "spec": {}}
    stage.cluster.create(GANG_QUEUES, body)
    wait_group(stage, group, phase="Running", running=1)
    stage.cluster.patch(GANG_QUEUES, "closed", {"status": {"state": "Closed"}}, subresource="status")
    stage.delete(member, grace=0)
    stage.wait_gone(member)
    assert reason(wait_group(stage, group, phase="Pending")) == "QueueNotOpen"


def test_a_group_too_large_for_the_node_stays_pending_until_it_is_smaller(stage: Stage) -> None:
    group = make_group(stage, 1, minResources={"cpu": "9"})
    assert reason(wait_group(stage, group, phase="Pending")) == "NotEnoughResources"
    stage.cluster.patch(POD_GROUPS, group, {"spec": {"minResources": {"cpu": "8"}}}, "default")
    assert reason(wait_group(stage, group, phase="Inqueue")) == "NotEnoughTasks"


def test_a_waiting_pod_is_placed_when_the_node_gets_the_label(stage: Stage) -> None:
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    name = stage.run("true", affinity=affinity)
    stage.wait(name, lambda status: "does not meet spec.affinity.nodeAffinity" in str(status.get("conditions")))
    stage.cluster.patch(NODES, "local", {"metadata": {"labels": {"disk": "ssd"}}})
    stage.phase(name, "Succeeded")
    stage.cluster.patch(NODES, "local", {"metadata": {"labels": {"disk": None}}})


def test_the_cache_returns_a_written_status_before_the_watch_delivers_it(stage: Stage) -> None:
    group = make_group(stage, 1)
    book = PodGroupCache(stage.cluster, lambda: None)
    for cache in book.caches:
        cache.start()
        assert cache.wait_synced(SECONDS)
    try:
        for number in range(20):
            book.write(book.gangs().groups["default", group], {"note": number})
            assert book.gangs().groups["default", group].status["note"] == number
    finally:
        for cache in book.caches:
            cache.stop()


def test_a_status_is_not_written_to_a_deleted_or_replaced_group(stage: Stage) -> None:
    group = make_group(stage, 1)
    wait_group(stage, group, phase="Inqueue")
    book = PodGroupCache(stage.cluster, lambda: None)
    stale = podgroups.read(get(stage, group))
    stage.cluster.delete(POD_GROUPS, group, "default")
    book.write(stale, {"phase": "Running"})
    body = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": {"name": group}, "spec": {}}
    stage.cluster.create(POD_GROUPS, body, "default")
    book.write(stale, {"phase": "Completed"})
    assert get(stage, group).get("status", {}).get("phase") != "Completed"
