"""The plan of resizes that every user may request: it shows what the leader is about to do, and changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.cli.commands.scale import format_plan
from coordinator.elastic import dry_run
from crds.api_resources import TENANT_QUEUES
from kube.client import KubernetesCluster
from tests.coordinator.elastic.test_autoscaler import elastic, grow, look, pass_time, reason
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk


@pytest.fixture
def desk(embedded_cluster: KubernetesCluster, namespace: str, clock: Clock) -> Iterator[Desk]:
    with Desk(embedded_cluster, clock, pool="none", idle_seconds=30.0) as found:
        found.queue("a", quota={"cpu": "4"})
        found.begin()
        yield found
    desks.clear(embedded_cluster)


def planned(desk: Desk, *, leading: bool = True) -> Any:
    memory = desk.memory if leading else type(desk.memory)(desk.settings)
    return dry_run.describe(
        desk.watches, memory, desk.settings, lambda: desk.store.snapshot(100), leading=leading, clock=desk.clock
    )


def test_a_plan_names_who_gives_back_to_whom(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    grow(desk, key, 2)
    pass_time(desk)  # the leader has just planned, and plans again after a second
    head = desk.submit("head", namespace, "a", tasks={"Worker": desks.task(2)})
    desk.until(lambda: head in desk.waiting(), worker=False)
    document = planned(desk)
    (found,) = document["resizes"]
    facts = {name: found[name] for name in ("workers", "to", "reason", "for", "forQueue", "idle", "leaving")}
    named = {"for": f"{namespace}/head", "forQueue": "a"}
    assert facts == {"workers": 4, "to": 2, "reason": "GiveBack", "idle": 2, "leaving": 0, **named}
    assert document["claims"] == [{"queue": "a", "job": f"{namespace}/head"}]
    assert (document["unchanged"], reason(desk, key)) == ([], "Idle")
    lines = format_plan(document).splitlines()
    assert lines[1].split()[:10] == [f"{namespace}/train", "a", "4", "2", "2", "1", "8", "2", "GiveBack", "gives"]
    assert lines[2] == f"kept for {namespace}/head: what is given back in queue a"
    assert look(desk, key) == (2, "GiveBack"), "the leader makes the planned change"
    look(desk, key)
    (leaving,) = planned(desk)["unchanged"]
    message = f"gives 2 workers back to {namespace}/head of queue a"
    assert (leaving["leaving"], leaving["code"], leaving["message"]) == (2, "Leaving", message)


def test_only_the_leader_knows_for_how_long_room_was_idle(desk: Desk, namespace: str) -> None:
    elastic(desk, namespace, 2)
    assert planned(desk)["unchanged"][0]["code"] == "NotIdleYet"
    for _ in range(29):
        pass_time(desk)
    desk.clock.step(5)
    assert [each["to"] for each in planned(desk)["resizes"]] == [4]
    other = planned(desk, leading=False)
    assert other["unchanged"][0]["code"] == "NotIdleYet"
    assert "does not lead" in format_plan(other)


def test_a_plan_says_what_keeps_a_job_from_growing(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"namespaces": ["others"]}})
    desk.until(lambda: desk.watches.rules().queues["a"].namespaces, worker=False)
    (found,) = planned(desk)["unchanged"]
    assert (found["uid"], found["code"]) == (key.uid, "NotAllowed")
    assert f"is not for namespace {namespace}" in found["message"]
    desk.settings = desk.settings.model_copy(update={"autoscale": "off"})
    assert "autoscale is off" in format_plan(planned(desk))
