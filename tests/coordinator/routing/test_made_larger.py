"""Jobs whose pods an API server makes larger than their templates: the store, the next picks and the cost."""

from collections.abc import Iterable

from coordinator.cache.noted_jobs import MOST_RAISED, RaisedCharges
from coordinator.cache.views import JobView
from crds.keys import JobKey
from kube.client import KubernetesCluster
from queues.store import RaisedCharge
from tests.support.clock import Clock
from tests.support.coordinator.builders import admission
from tests.support.coordinator.builders import job as job_view
from tests.support.coordinator.desk import Desk, task
from tests.support.reconcilers.adding import Adding

GI = 2**30
THREE = {"Master": task(), "Worker": task(2) | {"dependsOn": []}}


def add_memory(desk: Desk) -> None:
    """Make every new container request 1 Gi of memory."""
    desk.reconciler.close()
    desk.working = Adding(desk.working, memory="1Gi")  # type: ignore[assignment]
    desk.reconciler = desk.new_reconciler()


def charged(desk: Desk, key: JobKey) -> int:
    """Return the memory for which a job is charged, after a check that its status and the store agree."""
    admission = desk.job(key).admission
    in_store = desk.content.reservations.get(key)
    assert admission is not None
    assert in_store is not None
    assert dict(admission.charge) == dict(in_store.charge)
    return admission.charge.get("memory", 0)


def test_a_raised_charge_counts_for_its_job_and_for_the_next_one(desk: Desk, namespace: str) -> None:
    add_memory(desk)
    desk.queue("a", quota={"memory": "5Gi"})
    desk.begin()
    first = desk.submit("first", namespace, "a", tasks=THREE)
    desk.until(lambda: len(desk.pods_of(first)) == 3 and charged(desk, first) == 3 * GI)
    assert desk.content.usage["a"]["memory"] == 3 * GI
    second = desk.submit("second", namespace, "a", tasks=THREE)
    desk.until(lambda: desk.phase(second) == "Queued" and second in desk.waiting())
    found = desk.job(second)
    assert found.admission is None
    assert found.charge["memory"] == 3 * GI
    assert "memory" in next(each.message for each in found.status.conditions if each.reason == "ExceedsQuota")
    assert not desk.pods_of(second)
    assert desk.content.entries[second].entry.demand["memory"] == 3 * GI, (
        "the next pick charges the larger demand at once"
    )
    assert desk.content.usage["a"]["memory"] == 3 * GI
    desk.change(first, suspend=True)
    desk.until(lambda: len(desk.pods_of(second)) == 3)
    assert charged(desk, second) == 3 * GI
    assert desk.job(second).status.attempt == 2


def test_a_rebuild_keeps_the_raised_charge_and_the_demand_of_the_waiting_job(desk: Desk, namespace: str) -> None:
    add_memory(desk)
    desk.queue("a", quota={"memory": "5Gi"})
    desk.begin()
    first = desk.submit("first", namespace, "a", tasks=THREE)
    desk.until(lambda: len(desk.pods_of(first)) == 3)
    second = desk.submit("second", namespace, "a", tasks=THREE)
    desk.until(lambda: desk.phase(second) == "Queued" and second in desk.waiting())
    desk.lose()
    desk.begin(2)
    assert desk.content.reservations[first].charge["memory"] == 3 * GI
    assert desk.content.entries[second].entry.demand["memory"] == 3 * GI
    assert desk.content.usage["a"]["memory"] == 3 * GI


def test_a_job_whose_raised_charge_exceeds_the_quota_is_not_tried_again(desk: Desk, namespace: str) -> None:
    add_memory(desk)
    desk.queue("a", quota={"memory": "2Gi"})
    desk.begin()
    large = desk.submit("large", namespace, "a", tasks=THREE)
    desk.until(lambda: desk.phase(large) == "Queued" and large in desk.waiting() and not desk.reserved())
    assert desk.job(large).charge["memory"] >= 3 * GI
    assert desk.watches.job(large) is not None
    tries = desk.job(large).status.attempt
    small = desk.submit("small", namespace, "a", tasks={"Master": task()})
    desk.until(lambda: len(desk.pods_of(small)) == 1 and charged(desk, small) == GI)
    assert desk.job(large).status.attempt == tries, "the job is not tried again and again"


def memory(raised: RaisedCharge) -> int:
    return raised.after["memory"] - raised.before.get("memory", 0)


def test_the_queue_pays_for_the_raised_amount(cluster: KubernetesCluster, namespace: str, clock: Clock) -> None:
    with Desk(cluster, clock, cost="memory") as desk:
        add_memory(desk)
        desk.queue("a")
        desk.begin()
        paid: list[RaisedCharge] = []
        charge = desk.term._pick_cycle.charge

        def listen(charges: Iterable[RaisedCharge]) -> None:
            told = list(charges)
            paid.extend(told)
            charge(told)

        desk.term._pick_cycle.charge = listen  # type: ignore[method-assign]
        job = desk.submit("job", namespace, "a", tasks=THREE)
        desk.until(lambda: len(desk.pods_of(job)) == 3 and sum(map(memory, paid)) == 3 * GI)
        assert {each.queue for each in paid} == {"a"}


def test_only_increases_within_one_attempt_are_paid() -> None:
    def at(attempt: int, grown: int = 0, **charge: int) -> JobView:
        return job_view(admission=admission(attempt=attempt, grown=grown, charge={"jobs": 1, **charge}))

    raised = RaisedCharges()
    for before, after in (
        (None, at(1, memory=4)),
        (at(1, memory=4), at(1, memory=4)),
        (at(1, memory=4), at(1, memory=9)),
        (at(1, memory=9), at(2, memory=20)),
        (at(2, memory=9), at(2, grown=1, memory=20)),  # the growth was paid for at its pick
        (at(2, memory=20), job_view()),
        (at(2, memory=9), at(2, memory=4)),
        (at(2, memory=4), None),
    ):
        raised.note(before, after)
    assert list(raised.take()) == [("a", {"jobs": 1, "memory": 4}, {"jobs": 1, "memory": 9})]
    assert list(raised.take()) == []
    for _ in range(2 * MOST_RAISED):
        raised.note(at(1, memory=4), at(1, memory=9))
    assert len(list(raised.take())) == MOST_RAISED
