"""Jobs that name queues of Volcano, whose capability limits the picks, on the embedded API server and a real API
server.

The test plays Volcano: it writes the states of the queues, and binds no pod.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.leader import quota_judgement
from crds.api_resources import GANG_QUEUES, POD_GROUPS, TENANT_QUEUES
from crds.keys import JobKey
from kube import errors
from kube.client import KubernetesCluster
from tests.support.clock import Clock
from tests.support.coordinator import kinds
from tests.support.coordinator.desk import Desk, remove
from tests.support.waiting import until

GPU = "nvidia.com/gpu"


@pytest.fixture
def volcano(cluster: KubernetesCluster, clock: Clock, namespace: str) -> Iterator[Desk]:
    """Yield a desk whose gangs are bound by Volcano, in a pool of 32 GPUs."""
    kinds.install_gangs(cluster)
    with Desk(cluster, clock, gang_scheduler="volcano", pool=f"{GPU}=32", cost=GPU) as desk:
        yield desk
    for each in cluster.list(GANG_QUEUES).items:
        if each["metadata"]["name"] != "default":
            remove(cluster, GANG_QUEUES, each["metadata"]["name"], "")


def gang_queue(desk: Desk, name: str, state: str = "Open", allocated: int = 0, **spec: Any) -> None:
    """Make a queue of Volcano, or change it, and wait until the coordinator sees it."""
    body = {"apiVersion": GANG_QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    try:
        desk.cluster.create(GANG_QUEUES, body)
    except errors.AlreadyExists:
        desk.cluster.patch(GANG_QUEUES, name, {"spec": spec})
    status = {"status": {"state": state, "allocated": {GPU: str(allocated)}}}
    made = desk.cluster.patch(GANG_QUEUES, name, status, subresource="status")
    (informer,) = desk.watches.gang_queues.informers
    assert informer.wait_for(int(made["metadata"]["resourceVersion"]), 10.0)


def submit(desk: Desk, name: str, namespace: str, queue: str, gpus: int = 8, **policy: str) -> JobKey:
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    template = {"spec": {"containers": [{"name": "torch", "image": "torch:1", "resources": resources}]}}
    return desk.submit(name, namespace, queue, tasks={"Master": {"template": template}}, schedulingPolicy=policy)


def groups(desk: Desk, namespace: str) -> dict[str, str]:
    """Return the queue of each PodGroup."""
    listed = desk.cluster.list(POD_GROUPS, namespace).items
    return {each["metadata"]["name"]: each["spec"].get("queue", "") for each in listed}


def until_reason(desk: Desk, key: JobKey, code: str) -> str:
    """Let coordinator and worker work until the status of a waiting job has a reason; return its message."""

    def found() -> bool:
        desk.clock.step(1.0)
        desk.write_reasons()
        queue = desk.job(key).status.queue
        return queue is not None and queue.reason == code

    desk.until(found)
    return str(desk.job(key).status.queue.message)


def test_jobs_that_name_a_small_queue_of_volcano_leave_the_rest_of_the_pool_to_others(
    volcano: Desk, namespace: str
) -> None:
    for name in ("a", "b"):
        volcano.queue(name)
    gang_queue(volcano, "small", capability={GPU: 8})
    small = [submit(volcano, f"s{number}", namespace, "a", gangQueue="small") for number in range(4)]
    volcano.begin()
    other = submit(volcano, "other", namespace, "b", gpus=24)
    volcano.until(lambda: volcano.phase(other) == "Admitted" and len(volcano.reserved()) == 2)
    (picked,) = volcano.reserved() - {other}
    waiting = [key for key in small if key != picked]
    for key in waiting:
        assert until_reason(volcano, key, "WaitingForGangQueue") == (
            f"queue small of the gang scheduler has no room for the job's gang: {GPU}: asks 8, used 8, hard 8"
        )
    volcano.until(lambda: volcano.phase(picked) == "Admitted")
    assert groups(volcano, namespace).keys() == {"other-0", f"{picked.name}-0"}, (
        "no group is created for a job that must wait"
    )
    volcano.change(picked, cancel=True)
    volcano.until(lambda: len(volcano.reserved() & set(waiting)) == 1)


def test_one_round_of_picks_takes_no_more_than_the_queue_of_volcano_has(volcano: Desk, namespace: str) -> None:
    for name in ("a", "b"):
        volcano.queue(name, stopPolicy="Hold", gangQueue="small")
    gang_queue(volcano, "small", capability={GPU: 16})
    keys = [submit(volcano, f"j{number}", namespace, "ab"[number % 2]) for number in range(6)]
    free = submit(volcano, "free", namespace, "b", gangQueue="default")
    volcano.begin()
    volcano.until(lambda: volcano.waiting() == {*keys, free})
    for name in ("a", "b"):
        volcano.cluster.patch(TENANT_QUEUES, name, {"spec": {"stopPolicy": "None"}})
    volcano.until(lambda: len(volcano.reserved()) == 3, worker=False)
    for _ in range(3):
        volcano.settling.step(1.0)
        volcano.term.step()
    assert len(volcano.reserved() & {*keys}) == 2
    assert free in volcano.reserved(), "a job of another queue goes, whatever the order of the waiting jobs"
    assert volcano.term.counts.picked == 3, "no pick was taken back"


@pytest.mark.parametrize("state", ["Closed", "missing"])
def test_a_job_waits_for_a_queue_of_volcano_that_is_closed_or_missing(
    volcano: Desk, namespace: str, state: str
) -> None:
    volcano.queue("a", ordering="StrictFIFO")
    if state != "missing":
        gang_queue(volcano, "other", state)
    key = submit(volcano, "train", namespace, "a", gangQueue="other")
    volcano.begin()
    behind = submit(volcano, "behind", namespace, "a")
    assert "queue other" in until_reason(volcano, key, "WaitingForGangQueue")
    volcano.until(lambda: volcano.reserved() == {behind})
    gang_queue(volcano, "other", "Open")
    volcano.until(lambda: volcano.reserved() == {key, behind})


def test_the_first_job_that_names_a_queue_of_volcano_waits_for_its_room_at_once(volcano: Desk, namespace: str) -> None:
    volcano.queue("a")
    volcano.begin()
    other = submit(volcano, "other", namespace, "a")
    volcano.until(lambda: volcano.reserved() == {other})
    volcano.term.step()
    assert volcano.watches.rule_watches.rules().gang_rooms is None
    key = submit(volcano, "train", namespace, "a", gangQueue="nowhere")
    until(lambda: volcano.watches.job(key))
    assert not quota_judgement.take_gang_room(volcano.watches, volcano.term._configuration.rules(), key, {GPU: 8000})
    volcano.term.step()
    assert volcano.reserved() == {other}
    assert "queue nowhere" in until_reason(volcano, key, "WaitingForGangQueue")
    assert volcano.term.counts.picked == 1, "the job was never picked"


def test_pods_of_others_and_queues_above_take_room(volcano: Desk, namespace: str) -> None:
    volcano.queue("a")
    gang_queue(volcano, "org", capability={GPU: 16})
    gang_queue(volcano, "team", parent="org")
    gang_queue(volcano, "foreign", parent="org")
    gang_queue(volcano, "org", allocated=16, capability={GPU: 16})
    key = submit(volcano, "train", namespace, "a", gangQueue="team")
    volcano.begin()
    assert "queue org" in until_reason(volcano, key, "WaitingForGangQueue")
    gang_queue(volcano, "org", allocated=8, capability={GPU: 16})
    volcano.until(lambda: volcano.reserved() == {key})


def test_a_tenant_names_only_the_queues_of_volcano_that_an_admin_lists(volcano: Desk, namespace: str) -> None:
    volcano.queue("a", gangQueues=["ours", "spare"])
    for name in ("ours", "spare", "theirs"):
        gang_queue(volcano, name)
    volcano.begin()
    theirs = submit(volcano, "theirs", namespace, "a", gangQueue="theirs")
    assert "may not name gangQueue theirs" in until_reason(volcano, theirs, "NotAllowed")
    none, spare = submit(volcano, "none", namespace, "a"), submit(volcano, "spare", namespace, "a", gangQueue="spare")
    volcano.until(lambda: len(groups(volcano, namespace)) == 2)
    assert groups(volcano, namespace) == {"none-0": "ours", "spare-0": "spare"}
    assert volcano.reserved() == {none, spare}
    volcano.cluster.patch(TENANT_QUEUES, "a", {"spec": {"gangQueues": None}})
    volcano.until(lambda: theirs in volcano.reserved())


def test_without_the_right_to_read_queues_jobs_go_and_the_log_says_so_once(
    cluster: KubernetesCluster, clock: Clock, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    kinds.install_gangs(cluster)
    caplog.set_level(logging.WARNING)
    desk = Desk(cluster, clock, gang_scheduler="volcano")
    for each in (desk.watches.gang_queues, desk.watches.foreign):
        each.start()
    try:
        assert desk.watches.gang_queues.wait_discovered(10.0)
        (informer,) = desk.watches.gang_queues.informers
        for _ in range(2):
            informer.on_failure(errors.Forbidden("queues"))
        assert len([each for each in caplog.records if "do not limit picks" in each.message]) == 1
    finally:
        for each in (desk.watches.gang_queues, desk.watches.foreign):
            each.stop()
