"""Jobs outside the order of their queue enter this order once a change removes the obstacle."""

from crds.api_resources import NAMESPACES, PRIORITY_CLASSES, TENANT_QUEUES
from kube.client import KubernetesCluster
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk


def routed(desk: Desk) -> None:
    """Wait until all known jobs are routed."""
    desk.until(lambda: desk.term.counts.routed and not desk.watches.take(0))


def test_a_job_waits_until_its_namespace_is_listed_in_the_queue(desk: Desk, namespace: str) -> None:
    desk.queue("a", namespaces=["others"])
    desk.begin()
    key = desk.submit("train", namespace, "a")
    routed(desk)
    assert desk.waiting() | desk.reserved() == set()
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"namespaces": ["others", namespace]}})
    desk.until(lambda: desk.reserved() == {key})


def test_a_job_waits_until_its_namespace_has_the_label(desk: Desk, namespace: str) -> None:
    desk.queue("a", namespaceSelector={"matchLabels": {"tier": "gold"}})
    desk.begin()
    key = desk.submit("train", namespace, "a")
    routed(desk)
    assert desk.waiting() | desk.reserved() == set()
    desk.cluster.patch(NAMESPACES, namespace, {"metadata": {"labels": {"tier": "gold"}}})
    desk.until(lambda: desk.reserved() == {key})


def test_jobs_survive_the_deletion_of_their_queue_and_continue_when_it_returns(desk: Desk, namespace: str) -> None:
    desk.queue("a", quota={"jobs": 1})
    desk.begin()
    first, second = desk.submit("first", namespace, "a"), desk.submit("second", namespace, "a")
    desk.until(lambda: len(desk.pods_of(first)) == 2 and desk.waiting() == {second})
    desk.cluster.delete(TENANT_QUEUES, "a")
    desk.until(lambda: desk.waiting() == set())
    assert desk.reserved() == {first}
    desk.move(first, "Running")
    desk.until(lambda: desk.phase(first) == "Running")
    desk.queue("a", quota={"jobs": 2})
    desk.until(lambda: desk.reserved() == {first, second})


def test_a_job_waits_until_its_priority_class_exists(
    desk: Desk, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    policy = {"priorityClassName": f"{namespace}-urgent"}
    key = desk.submit("train", namespace, "a", schedulingPolicy=policy)
    explicit = desk.submit("explicit", namespace, "a", schedulingPolicy={**policy, "priority": 0})
    desk.until(lambda: desk.waiting() == {explicit})
    body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
    embedded_cluster.create(PRIORITY_CLASSES, body | {"metadata": {"name": f"{namespace}-urgent"}, "value": 77})
    desk.until(lambda: desk.waiting() == {key, explicit})
    assert desk.content.entries[key].entry.priority == 77
    assert desk.content.entries[explicit].entry.priority == 0
    desks.remove(embedded_cluster, PRIORITY_CLASSES, f"{namespace}-urgent", "")
    desk.until(lambda: desk.waiting() == {explicit})
