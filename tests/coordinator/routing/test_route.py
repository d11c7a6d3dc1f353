"""Every row of the routing table."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.job_waits import WaitState
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobPods, JobView
from coordinator.cache.worker_counts import WorkerCounts
from coordinator.routing import route
from crds.keys import JobKey
from crds.tenantqueue import NamespaceSelector, TenantQueueSpec
from crds.torchjob.status import Target
from queues.tasks import Offer
from queues.values import Entry
from queues.work_kinds import WorkKind
from tests.doubles.memory_work import MemoryWork
from tests.support.clock import Clock
from tests.support.coordinator.builders import KEY, admission, job
from tests.support.queues.builders import registration

NOW = 1000.0
SINCE = "2026-01-01T00:00:00Z"
OCCUPIED = JobPods(occupy=True, queue="a", version=7)
EMPTY = JobPods(version=7)
ENDED = job(finished=True, admission=admission(gang_scheduler="none"))


@pytest.mark.parametrize(
    ("state", "pods", "put", "remove", "looks"),
    [
        pytest.param(None, OCCUPIED, False, False, True, id="gone, occupied"),
        pytest.param(None, EMPTY, False, True, False, id="gone"),
        pytest.param(job(deleting=True), OCCUPIED, False, False, True, id="deleting, occupied"),
        pytest.param(job(deleting=True), EMPTY, False, True, True, id="deleting"),
        pytest.param(job(finished=True, admission=admission()), OCCUPIED, False, False, True, id="finished, occupied"),
        pytest.param(job(finished=True, admission=admission()), EMPTY, False, True, True, id="finished"),
        pytest.param(ENDED, EMPTY, False, True, False, id="finished, and nothing is left"),
        pytest.param(
            ENDED, JobPods(exist=True, version=7), False, True, True, id="finished, and finished pods are left"
        ),
        pytest.param(
            replace(ENDED, expires=True), EMPTY, False, True, True, id="finished, and deleted after its time to live"
        ),
        pytest.param(replace(ENDED, deleting=True), EMPTY, False, True, True, id="finished and deleting"),
        pytest.param(job(invalid=True), OCCUPIED, False, False, True, id="invalid, occupied"),
        pytest.param(job(invalid=True), EMPTY, False, True, True, id="invalid"),
        pytest.param(job(cancelled=True, admission=admission()), EMPTY, False, False, True, id="cancelled, admitted"),
        pytest.param(job(cancelled=True), OCCUPIED, False, False, True, id="cancelled, occupied"),
        pytest.param(job(cancelled=True, held=True), EMPTY, False, True, True, id="cancelled, held"),
        pytest.param(job(cancelled=True, phase="Suspended", suspended=True), EMPTY, False, True, True, id="cancelled"),
        pytest.param(job(suspended=True, admission=admission()), EMPTY, False, False, True, id="suspended, admitted"),
        pytest.param(job(suspended=True), OCCUPIED, False, False, True, id="suspended, occupied"),
        pytest.param(job(suspended=True), EMPTY, False, True, True, id="suspended"),
        pytest.param(job(admission=admission()), EMPTY, False, False, True, id="admitted"),
        pytest.param(job(), OCCUPIED, False, False, True, id="pods left of an earlier attempt"),
        pytest.param(job(), EMPTY, True, False, False, id="waiting"),
        pytest.param(job(held=True), EMPTY, False, True, False, id="held"),
        pytest.param(job(held=True, admission=admission()), EMPTY, False, False, True, id="held when it was admitted"),
        pytest.param(job(phase="Suspended"), EMPTY, True, False, True, id="resumed"),
        pytest.param(job(phase=""), EMPTY, True, False, True, id="new"),
    ],
)
def test_route_puts_removes_or_offers_a_job_by_its_state(
    state: JobView | None, pods: JobPods, put: bool, remove: bool, looks: bool
) -> None:
    found = route.route(KEY, state, pods, RoutingRules(queued_after=1.0), NOW)
    assert (found.put is not None, found.remove, found.offer is not None) == (put, remove, looks)
    if found.offer:
        assert found.offer.seen == 7


def test_a_new_job_is_put_with_its_age_and_next_attempt() -> None:
    found = route.route(KEY, job(attempt=2, priority=5, phase=""), EMPTY, RoutingRules(queued_after=1.5), NOW)
    assert found.put == Entry(
        key=KEY, queue="a", submitted=100.0, priority=5, attempt=3, demand={"cpu": 2000, "jobs": 1}
    )
    assert found.offer == Offer(key=KEY, tenant="/team", seen=7, delay=1.5, kind="tells")


def test_a_resumed_job_is_offered_without_delay() -> None:
    found = route.route(KEY, job(phase="Suspended"), EMPTY, RoutingRules(queued_after=1.5), NOW)
    assert found.offer is not None
    assert found.offer.delay == 0


@pytest.mark.parametrize("phase", ["", "Queued"])
def test_a_job_with_uncounted_claims_is_offered_at_once_and_again(phase: str) -> None:
    found = route.route(
        KEY, job(phase=phase, claims="spec", uncounted=True), EMPTY, RoutingRules(queued_after=1.5), NOW
    )
    assert found.offer is not None
    assert (found.offer.delay, found.due_at) == (0.0, NOW + route.COUNT_AGAIN)


LEFT = JobPods(exist=True, version=7)


@pytest.mark.parametrize(
    ("state", "pods", "in_turn"),
    [
        (job(phase=""), EMPTY, True),
        (job(phase="Suspended"), EMPTY, True),
        (job(suspended=True), EMPTY, True),
        (job(suspended=True), LEFT, False),
        (job(suspended=True, admission=admission()), EMPTY, False),
        (job(invalid=True), EMPTY, True),
        (job(invalid=True), LEFT, False),
        (job(invalid=True, deleting=True), EMPTY, False),
        (job(admission=admission()), EMPTY, False),
        (job(), OCCUPIED, False),
        (None, OCCUPIED, False),
    ],
)
def test_an_offer_that_only_writes_a_status_takes_its_turn(state: JobView | None, pods: JobPods, in_turn: bool) -> None:
    found = route.route(KEY, state, pods, RoutingRules(queued_after=1.5), NOW)
    assert found.offer is not None
    assert found.in_turn == in_turn


def counts(leaving: int = 0, target: int = 0) -> WorkerCounts:
    """Return the counts of an elastic job, with workers that leave or a target."""
    aim = Target.model_validate({"workers": target, "reason": "Idle", "since": SINCE}) if target else None
    state = Autoscaling(on=True, most=8, every=300.0, leaving=leaving, target=aim)
    return WorkerCounts(least=1, wanted=8, step=1, least_charge={}, share={}, autoscaling=state)


RUNS = job(admission=admission(workers=3), phase="Running")
FULL = JobPods(exist=True, occupy=True, version=7)
PARTLY = replace(FULL, ended=True)
ALL_ENDED = JobPods(exist=True, ended=True, version=7)


@pytest.mark.parametrize(
    ("state", "pods", "kind"),
    [
        pytest.param(None, FULL, "ends", id="gone, occupied"),
        pytest.param(job(deleting=True), FULL, "ends", id="deleting, occupied"),
        pytest.param(job(deleting=True), EMPTY, "tells", id="deleting, and its charge is freed already"),
        pytest.param(job(finished=True, admission=admission()), FULL, "ends", id="finished, occupied"),
        pytest.param(job(finished=True, admission=admission()), ALL_ENDED, "tells", id="finished, to be cleaned up"),
        pytest.param(job(invalid=True, admission=admission()), FULL, "ends", id="invalid, occupied"),
        pytest.param(job(suspended=True, admission=admission()), EMPTY, "ends", id="suspended, admitted"),
        pytest.param(job(suspended=True), FULL, "ends", id="suspended, occupied"),
        pytest.param(job(suspended=True), EMPTY, "tells", id="suspended"),
        pytest.param(job(cancelled=True, admission=admission()), EMPTY, "ends", id="cancelled, admitted"),
        pytest.param(job(), FULL, "ends", id="pods left of an earlier attempt"),
        pytest.param(job(phase=""), EMPTY, "tells", id="waiting"),
        pytest.param(RUNS, ALL_ENDED, "ends", id="every pod has ended"),
        pytest.param(RUNS, PARTLY, "begins", id="a pod has ended"),
        pytest.param(RUNS, FULL, "tells", id="runs"),
        pytest.param(replace(RUNS, observed=False), FULL, "begins", id="runs, and its spec has changed"),
        pytest.param(replace(RUNS, phase="Admitted"), EMPTY, "begins", id="admitted"),
        pytest.param(replace(RUNS, workers=counts()), FULL, "begins", id="may be resized"),
        pytest.param(replace(RUNS, workers=counts(leaving=1)), FULL, "ends", id="workers leave"),
        pytest.param(replace(RUNS, workers=counts(target=1)), FULL, "ends", id="workers are to leave"),
        pytest.param(replace(RUNS, workers=counts(target=5)), FULL, "begins", id="workers are to come"),
        pytest.param(replace(RUNS, waits=WaitState(recalled=True)), FULL, "ends", id="its room is taken back"),
        pytest.param(replace(RUNS, waits=WaitState()), FULL, "tells", id="its scheduler has bound it"),
        pytest.param(job(admission=admission(queue="drains")), FULL, "ends", id="its queue drains"),
    ],
)
def test_a_reconcile_ends_while_a_charge_is_to_be_freed_and_tells_when_only_the_status_is_to_be_written(
    state: JobView | None, pods: JobPods, kind: WorkKind
) -> None:
    draining = RoutingRules(queues={"drains": TenantQueueSpec(stop_policy="HoldAndDrain")})
    found = route.route(KEY, state, pods, draining, NOW)
    assert found.offer is not None
    assert found.offer.kind == kind


OWNED, OTHERS = TenantQueueSpec(namespaces=("team",)), TenantQueueSpec(namespaces=("others",))
SELECTED = TenantQueueSpec(namespace_selector=NamespaceSelector(match_labels={"tier": "gold"}))
QUEUES = RoutingRules(
    queues={"owned": OWNED, "public": TenantQueueSpec(), "victim": OTHERS, "gold": SELECTED},
    namespaces={"rich": {"tier": "gold"}},
)


@pytest.mark.parametrize(
    ("queue", "namespace", "tenant"),
    [
        ("owned", "team", "owned"),
        ("public", "team", "public/team"),
        ("victim", "team", "/team"),
        ("gold", "team", "/team"),
        ("gold", "rich", "gold"),
        ("invented", "team", "/team"),
        ("team", "team", "/team"),
        ("", "team", "/team"),
    ],
)
def test_the_tenant_is_a_queue_that_the_namespace_may_use_or_the_namespace(
    queue: str, namespace: str, tenant: str
) -> None:
    key = JobKey(namespace, "train", "u1")
    states = [
        job(key=key, queue=queue, phase=""),
        job(key=key, queue=queue, suspended=True),
        job(key=key, queue="owned", admission=admission(queue=queue)),
        None,
    ]
    for state in states:
        found = route.route(key, state, JobPods(occupy=True, queue=queue), QUEUES, NOW)
        assert found.offer is not None
        assert found.offer.tenant == tenant


@given(st.lists(st.tuples(st.text(), st.booleans()), min_size=1))
def test_invented_queue_names_make_no_tenants(names: list[tuple[str, bool]]) -> None:
    tenants = {
        found.offer.tenant
        for name, suspended in names
        if name not in QUEUES.queues
        and (found := route.route(KEY, job(queue=name, suspended=suspended, phase=""), EMPTY, QUEUES, NOW)).offer
    }
    assert tenants <= {"/team"}


def test_a_tenant_is_not_delayed_by_4_000_suspended_jobs_with_invented_queues() -> None:
    work = MemoryWork(Clock(), lambda: 1, lambda _: None)
    flood = [JobKey("evil", f"job-{number}", f"u{number}") for number in range(4_000)]
    states = [job(key=key, queue=key.name, suspended=True, phase="") for key in flood]
    found = [route.route(state.key, state, EMPTY, QUEUES, NOW).offer for state in states]
    found.append(route.route(KEY, job(queue="owned", admission=admission(queue="owned")), EMPTY, QUEUES, NOW).offer)
    work.offer(each for each in found if each is not None)
    work.register(registration("worker", 2))
    work.dispatch()
    assert KEY in [key for key, _ in work.pop() + work.pop()]
