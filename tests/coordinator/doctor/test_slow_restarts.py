"""Nodes that wait long before they start containers again, as the messages in the statuses of pods show."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.doctor import collect
from coordinator.doctor.collect import Collector
from crds.api_resources import PODS, Resource
from kube import errors
from kube.api import Listing

WORDS = "back-off {} restarting failed container=torch pod=train-worker-0_team(0c5e8f0a)"


def pod(wait: str, policy: str = "OnFailure", node: str = "n1") -> dict[str, Any]:
    waiting = {"reason": "CrashLoopBackOff", "message": WORDS.format(wait)}
    states: list[dict[str, Any]] = [{"state": {"running": {}}}, {"state": {"waiting": waiting}}]
    return {"spec": {"restartPolicy": policy, "nodeName": node}, "status": {"containerStatuses": states}}


@pytest.mark.parametrize(
    ("wait", "slow"),
    [("1s", False), ("500ms", False), ("10s", True), ("1m20s", True), ("5m0s", True), ("2m", True), ("1h", True)],
)
def test_wait_of_more_than_a_second_is_slow(wait: str, slow: bool) -> None:
    assert collect.slow_node(pod(wait)) == ("n1" if slow else "")


def test_other_pods_show_nothing() -> None:
    assert collect.slow_node(pod("20s", "Always")) == ""
    assert collect.slow_node({"spec": {"restartPolicy": "OnFailure"}}) == ""
    pulling = pod("20s")
    pulling["status"]["containerStatuses"][1]["state"]["waiting"]["message"] = 'Back-off pulling image "torch:1"'
    assert collect.slow_node(pulling) == ""


def test_a_look_at_the_cluster_collects_the_slow_nodes() -> None:
    metadata = {"name": "train-worker-0", "namespace": "team", "resourceVersion": "1", "uid": "u", "labels": {}}
    listed = [{**pod(wait, node=node), "metadata": metadata} for node, wait in (("n1", "20s"), ("n2", "1s"))]

    class Server:
        def pages(self, resource: Resource, **_: str) -> list[Listing]:
            return [Listing(listed if resource == PODS else [], "1")]

        def list(self, _: Resource) -> Listing:
            return Listing([], "1")

        def get(self, *_: object) -> None:
            raise errors.NotFound("no Lease")

        def serves(self, _: Resource) -> bool:
            return False

    nothing: Any = SimpleNamespace(inspect=lambda: None)
    cluster: Any = Server()
    assert Collector(cluster, nothing, nothing, "torchq-system").collect().cluster.slow_nodes == {"n1"}
