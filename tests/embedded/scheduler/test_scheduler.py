"""The scheduler against an API server. The cluster has no node, so that no pod runs."""

from crds import timestamps
from crds.api_resources import PODS
from embedded import pod
from embedded.pod import LocalPod
from embedded.scheduler.node_capacity import Node
from embedded.scheduler.scheduler import Scheduler
from tests.support.embedded.stage import Stage

NODE = Node("local", {"cpu": 8000, "pods": 10}, {})
NOW = 1_800_000_000.0
HALF = {"resources": {"requests": {"cpu": "5"}}}


def seen(stage: Stage) -> list[LocalPod]:
    return [pod.read(item) for item in stage.cluster.list(PODS, "default").items]


def where(stage: Stage, name: str) -> str:
    return str(stage.get(name)["spec"].get("nodeName", ""))


def bind(stage: Stage, name: str, node: str) -> None:
    only = [pod for pod in seen(stage) if pod.name == name]
    Scheduler(stage.cluster, Node(node, {"cpu": 1, "pods": 10}, {}), lambda: only, lambda: NOW).cycle()


def test_a_bound_pod_uses_capacity_before_the_cache_shows_it(bare: Stage) -> None:
    begun = {"annotations": {"train.distributed.io/gang": "g"}}
    member = bare.run("true", metadata=begun)
    bind(bare, member, "other")
    first = bare.run("true", container=HALF)
    stale = seen(bare)
    scheduler = Scheduler(bare.cluster, NODE, lambda: stale, lambda: NOW)
    scheduler.cycle()
    assert where(bare, first) == "local"
    second = bare.run(
        "true", container=HALF, metadata=begun
    )  # this pod comes before `first`, because its group has a bound pod
    stale += [pod for pod in seen(bare) if pod.name == second]
    scheduler.cycle()
    assert where(bare, second) == ""
    for name in (member, first, second):
        bare.delete(name, grace=0)


def test_the_reason_of_a_waiting_pod_is_written_only_when_it_changes(bare: Stage) -> None:
    name = bare.run("true", container={"resources": {"requests": {"cpu": "9"}}})
    node = NODE
    scheduler = Scheduler(bare.cluster, node, lambda: seen(bare), lambda: NOW)
    scheduler.cycle()
    first = bare.get(name)
    (condition,) = first["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert condition["message"] == "the whole node has less cpu than requested"
    scheduler.cycle()
    assert bare.get(name)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    Scheduler(bare.cluster, Node("local", {"cpu": 9000}, {}), lambda: seen(bare), lambda: NOW).cycle()
    assert bare.status(name)["conditions"][0]["message"] == "the whole node has less pods than requested"
    bare.delete(name)


def test_pods_deleted_or_bound_meanwhile_are_skipped(bare: Stage) -> None:
    gone, taken, left = (bare.run("true") for _ in range(3))
    stale = seen(bare)
    bare.delete(gone)
    bind(bare, taken, "other")
    Scheduler(bare.cluster, NODE, lambda: stale, lambda: NOW).cycle()
    assert where(bare, taken) == "other"
    assert where(bare, left) == "local"
    for name in (taken, left):
        bare.delete(name, grace=0)


def test_an_incomplete_group_is_reported_after_a_delay(bare: Stage) -> None:
    gang = {"annotations": {"train.distributed.io/gang": "of-two", "train.distributed.io/gang-size": "2"}}
    name = bare.run("true", metadata=gang)
    born = timestamps.parse_seconds(bare.get(name)["metadata"]["creationTimestamp"])
    Scheduler(bare.cluster, NODE, lambda: seen(bare), lambda: born + 1).cycle()
    assert "conditions" not in bare.status(name)
    Scheduler(bare.cluster, NODE, lambda: seen(bare), lambda: born + 3).cycle()
    assert "not all of its 2 pods" in bare.status(name)["conditions"][0]["message"]
    bare.delete(name)
