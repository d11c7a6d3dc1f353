"""Every row of the routing table."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobPods, JobView
from coordinator.routing import route
from crds.keys import JobKey
from crds.tenantqueue import NamespaceSelector, TenantQueueSpec
from queues.values import Entry, Offer
from tests.doubles.memory_work import MemoryWork
from tests.support.clock import Clock
from tests.support.coordinator.builders import KEY, admission, job
from tests.support.queues.builders import registration

NOW = 1000.0
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
    assert found.offer == Offer(key=KEY, tenant="/team", seen=7, delay=1.5)


def test_a_resumed_job_is_offered_without_delay() -> None:
    found = route.route(KEY, job(phase="Suspended"), EMPTY, RoutingRules(queued_after=1.5), NOW)
    assert found.offer is not None
    assert found.offer.delay == 0


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
