"""The status of a TenantQueue, and how seldom it is written."""

from typing import Any

import pytest

from coordinator.cache.views import JobView
from coordinator.leader import queue_statuses
from coordinator.leader.queue_statuses import QueueStatuses
from coordinator.leader.status_writer import StatusWriter
from crds import tenantqueue
from crds.api_resources import TENANT_QUEUES
from crds.keys import JobKey
from crds.tenantqueue import TenantQueue, TenantQueueSpec, TenantQueueStatus
from kube import errors
from kube.object_errors import ObjectErrors
from tests.support.clock import Clock
from tests.support.coordinator import desk as desks
from tests.support.coordinator.builders import admission, job
from tests.support.coordinator.desk import Desk
from tests.support.reconcilers.bench import Counting
from tests.support.waiting import SECONDS, until


def queue(name: str, weight: int = 1) -> TenantQueue:
    return tenantqueue.parse(
        {
            "apiVersion": TENANT_QUEUES.api_version,
            "kind": "TenantQueue",
            "metadata": {"name": name},
            "spec": {"weight": weight},
        }
    )


def jobs(*each: JobView) -> list[JobView]:
    return list(each)


def status(**said: Any) -> dict[str, Any]:
    return {"pending": 0, "admitted": 0, "usage": {}, "share": "0%", "target": "0%", **said}


MOST_WRITES = 5
"""The most statuses of queues that are written in a second."""
USED = {"cpu": "2", "jobs": "1"}


@pytest.mark.parametrize(
    ("seen", "a", "b"),
    [
        pytest.param([], status(), status(), id="no job"),
        pytest.param([job()], status(pending=1, target="100%"), status(), id="one waiting job"),
        pytest.param(
            [job(), job(queue="b")],
            status(pending=1, target="75%"),
            status(pending=1, target="25%"),
            id="both queues have work, with weights 3 and 1",
        ),
        pytest.param(
            [job(admission=admission()), job(admission=admission(queue="b")), job(admission=admission())],
            status(admitted=2, usage={"cpu": "4", "jobs": "2"}, share="66%", target="75%"),
            status(admitted=1, usage=USED, share="33%", target="25%"),
            id="admitted",
        ),
        pytest.param(
            [job(admission=admission(charge={"cpu": 1500, "memory": 3 << 30, "jobs": 1}))],
            status(admitted=1, usage={"cpu": "1500m", "jobs": "1", "memory": "3Gi"}, share="100%", target="100%"),
            status(),
            id="amounts as people write them",
        ),
        pytest.param(
            [job(finished=True, admission=admission()), job(suspended=True), job(cancelled=True), job(invalid=True)],
            status(),
            status(),
            id="neither waiting nor admitted",
        ),
        pytest.param(
            [job(suspended=True, admission=admission())],
            status(admitted=1, usage=USED, share="100%", target="100%"),
            status(),
            id="suspended, its room not free yet",
        ),
        pytest.param([job(queue="nobodys")], status(), status(), id="a queue that does not exist"),
    ],
)
def test_status_counts_waiting_and_admitted_jobs_and_usage(seen: list[JobView], a: Any, b: Any) -> None:
    assert queue_statuses.statuses([queue("a", 3), queue("b")], seen) == {"a": a, "b": b}


def told(desk: Desk, name: str) -> dict[str, Any]:
    """Return the status that the API server has stored."""
    found: dict[str, Any] = desk.cluster.get(TENANT_QUEUES, name).get("status") or {}
    return found


def caught_up(desk: Desk, name: str) -> None:
    version = int(desk.cluster.get(TENANT_QUEUES, name)["metadata"]["resourceVersion"])
    assert desk.watches.queues.wait_for(version, SECONDS)


class Writing:
    """The part that computes the figures of queues, and the part that writes them."""

    def __init__(self, desk: Desk, cluster: Any = None) -> None:
        self.cluster = cluster or Counting(desk.cluster)
        self.clock = Clock()
        self.clock.now = 0.0
        self.statuses = StatusWriter(self.cluster, desk.watches, lambda: 1, elapsed=self.clock)
        self.figures = QueueStatuses(self.statuses.queues, desk.watches)

    def write(self) -> None:
        """Compute the figures once, and write the statuses that are due a second after the last round."""
        self.figures.look()
        self.clock.step(1.0)
        self.statuses.step()


@pytest.fixture
def writer(desk: Desk) -> Writing:
    return Writing(desk)


def written(writer: Writing) -> int:
    return writer.cluster.calls["patch TenantQueue"]


def test_a_status_is_written_once_per_change(desk: Desk, namespace: str, writer: Writing) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    caught_up(desk, "a")
    for _ in range(3):
        writer.write()
        assert written(writer) == 1
    caught_up(desk, "a")
    writer.write()
    assert written(writer) == 1
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.waiting() == {key})
    writer.write()
    writer.write()
    assert written(writer) == 2
    assert told(desk, "a") == status(pending=1, target="100%")


def test_a_new_writer_removes_amounts_that_it_did_not_write(desk: Desk, namespace: str, writer: Writing) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: (seen := desk.watches.job(key)) is not None and seen.admission is not None)
    writer.write()
    assert told(desk, "a")["usage"] == {**USED, "pods": "2"}
    desk.cluster.delete(desks.TORCHJOBS, "train", namespace)
    until(lambda: desk.watches.job(key) is None)
    caught_up(desk, "a")
    Writing(desk, desk.cluster).write()
    assert told(desk, "a")["usage"] == {}
    assert told(desk, "a")["admitted"] == 0


def test_a_recreated_queue_gets_a_status(desk: Desk, writer: Writing) -> None:
    for _ in range(2):
        desk.queue("a")
        caught_up(desk, "a")
        writer.write()
        assert told(desk, "a") == status()
        desk.cluster.delete(TENANT_QUEUES, "a")
        until(lambda: not desk.watches.queues.values())


class Away:
    """An API server that refuses every patch."""

    def __init__(self, error: Exception) -> None:
        self.asked, self._error = 0, error

    def patch(self, *_: object, **__: object) -> None:
        self.asked += 1
        raise self._error


@pytest.mark.parametrize(
    ("error", "asked"),
    [(errors.Unreachable("away"), 1), (errors.NotFound("deleted"), 3), (TypeError("nobody foresaw it"), 3)],
)
def test_a_failed_write_is_not_retried_in_the_same_round(desk: Desk, error: Exception, asked: int) -> None:
    for name in ("a", "b", "c"):
        desk.queue(name)
    caught_up(desk, "c")
    away = Away(error)
    Writing(desk, away).write()
    assert away.asked == asked


def test_queues_take_turns_if_many_change(desk: Desk, writer: Writing) -> None:
    names = [f"queue-{number:02}" for number in range(2 * MOST_WRITES + 1)]
    for name in names:
        desk.queue(name)
    caught_up(desk, names[-1])
    untold = {name for name in names if "pending" not in told(desk, name)}
    for left in (MOST_WRITES + 1, 1, 0):
        writer.write()
        untold = {name for name in untold if "pending" not in told(desk, name)}
        assert len(untold) == left


def test_jobs_are_counted_whatever_their_keys() -> None:
    other = job(key=JobKey("team", "other", "u2"))
    assert queue_statuses.statuses([queue("a")], [job(), other])["a"]["pending"] == 2


def test_shares_count_the_resource_of_the_cost_setting() -> None:
    charges = [("a", {"cpu": 1000, "gpu": 1, "jobs": 1}), ("b", {"cpu": 1000, "gpu": 3, "jobs": 1})]
    admitted = [job(admission=admission(queue=name, charge=charge)) for name, charge in charges]
    for cost, share in (("jobs", "50%"), ("gpu", "25%"), ("cpu", "50%"), ("tpu", "0%")):
        assert queue_statuses.statuses([queue("a"), queue("b")], admitted, cost)["a"]["share"] == share


def test_shares_count_the_resource_of_which_a_queue_uses_most_of_the_pool() -> None:
    charges = [("a", {"cpu": 9000, "x.org/gpu": 1, "jobs": 1}), ("b", {"cpu": 1000, "x.org/gpu": 3, "jobs": 1})]
    admitted = [job(admission=admission(queue=name, charge=charge)) for name, charge in charges]
    for pool, share in (({"cpu": 100_000, "x.org/gpu": 10}, "25%"), ({"cpu": 100_000}, "90%"), (None, "50%")):
        found = queue_statuses.statuses([queue("a"), queue("b")], admitted, pool=pool)
        assert found["a"]["share"] == share


def test_usage_lists_only_resources_that_an_admin_or_a_node_names() -> None:
    charges = [{"jobs": 1, **{f"example.org/{number}-{at}": 1 for at in range(60)}} for number in range(50)]
    named = {"cpu": 1000, "example.org/tpu": 2, "example.org/node": 3, "example.org/cost": 4}
    admitted = [job(admission=admission(charge={**charge, **named})) for charge in charges]
    other = queue("b")
    limited = other.model_copy(update={"spec": TenantQueueSpec(quota={"example.org/tpu": 9})})
    queues = [queue("a"), limited]
    found = queue_statuses.statuses(queues, admitted, "example.org/cost", pool={"example.org/node": 9})["a"]["usage"]
    sums = {"cpu": "50", "jobs": "50", "example.org/tpu": "100", "example.org/node": "150", "example.org/cost": "200"}
    assert found == sums


def test_usage_is_cut_to_the_maximum_and_keeps_limited_resources() -> None:
    offered = [f"example.org/{at:03}" for at in range(200)]
    charges = [{"jobs": 1, **dict.fromkeys(offered[at : at + 50], 1)} for at in range(0, 200, 50)]
    limited = queue("a").model_copy(update={"spec": TenantQueueSpec(quota={"example.org/199": 9})})
    admitted = [job(admission=admission(charge=charge)) for charge in charges]
    found = queue_statuses.statuses([limited], admitted, pool=dict.fromkeys(offered, 9))["a"]["usage"]
    assert {"jobs", "example.org/199", "example.org/000"} <= found.keys()
    assert len(found) == 64
    TenantQueueStatus(usage=found)


def test_a_job_that_cannot_be_counted_is_skipped() -> None:
    odd = job(admission=admission().model_copy(update={"charge": {"cpu": "much"}}))
    sound = job(key=JobKey("team", "two", "u2"), admission=admission())
    skipped = ObjectErrors()
    found = queue_statuses.statuses([queue("a")], [sound, odd], errors=skipped)
    assert (found["a"]["admitted"], found["a"]["usage"]["cpu"]) == (1, "2")
    assert skipped.summary.startswith("the charge of TorchJob team/train (TypeError")
