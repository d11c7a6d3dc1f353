"""Foreign kinds: an installed kind is followed, a missing kind costs a request now and then, and a new kind is
noticed.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.cache import optional_kinds
from coordinator.cache.optional_kinds import ForeignView, OptionalKinds
from coordinator.settings import Settings
from coordinator.worker.caches import WorkerCaches
from coordinator.worker.process import reconcile_settings
from crds import labels
from crds.api_resources import (
    ALPHA_POD_GROUPS,
    ALPHA_RECREATE_REQUESTS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    RECREATE_REQUESTS,
    Resource,
)
from crds.keys import JobKey
from gang import backends
from kube import errors
from kube.api import Cluster, Manifest
from kube.client import KubernetesCluster
from kube.informer import Informer
from kube.process.turns import Turns
from tests.support.coordinator import kinds
from tests.support.coordinator.desk import Clock, Desk
from tests.support.waiting import SECONDS, until

KIND = Resource("example.org", "v1", "gadgets", "Gadget")
ABSENT = Resource("example.org", "v2", "gadgets", "Gadget")


@pytest.fixture
def gadgets(cluster: KubernetesCluster) -> Iterator[Resource]:
    """Install a foreign kind for the duration of the test."""
    kinds.install(cluster, KIND)
    yield KIND
    kinds.uninstall(cluster, KIND)


def gadget(name: str, uid: str = "u", **status: object) -> Manifest:
    marks = {labels.JOB_UID: uid, labels.JOB_NAME: "train"}
    body = {"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": {"name": name, "labels": marks}}
    return body | {"status": status}


def informer(cluster: Cluster) -> Informer[ForeignView]:
    def index(view: ForeignView) -> str | None:
        return view.job.uid if view.job else None

    return Informer(cluster, KIND, trim=optional_kinds.foreign_view, index=index)


def test_serves_tells_installed_kinds_and_versions_from_missing_ones(
    cluster: KubernetesCluster, gadgets: Resource
) -> None:
    assert cluster.serves(PODS)
    assert cluster.serves(gadgets)
    assert not cluster.serves(ABSENT)
    assert not cluster.serves(Resource("example.org", "v1", "others", "Other"))


def test_an_installed_kind_is_followed(cluster: KubernetesCluster, gadgets: Resource, namespace: str) -> None:
    cluster.create(KIND, gadget("one"), namespace)
    found = OptionalKinds(cluster.serves, [KIND], lambda _: informer(cluster))
    found.start()
    try:
        assert found.wait_discovered(SECONDS)
        assert found.served == {KIND}
        until(lambda: [each.job for each in found.indexed("u")] == [JobKey(namespace, "train", "u")])
        assert found.indexed("another") == []
    finally:
        found.stop()


def test_a_kind_that_is_installed_later_is_followed(
    cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(optional_kinds, "LOOK_SECONDS", 0.05)
    told = threading.Semaphore(0)
    found = OptionalKinds(cluster.serves, [KIND, ABSENT], lambda _: informer(cluster), told.release)
    with caplog.at_level(logging.INFO, "coordinator.cache.optional_kinds"):
        found.start()
        try:
            assert found.wait_discovered(SECONDS)
            assert found.served == frozenset()
            kinds.install(cluster, KIND)
            until(lambda: found.served == {KIND})
            assert told.acquire(timeout=SECONDS)
            cluster.create(KIND, gadget("one"), namespace)
            until(lambda: found.indexed("u"))
        finally:
            found.stop()
            kinds.uninstall(cluster, KIND)
    said = [record.getMessage() for record in caplog.records]
    assert [each.split(":")[0] for each in said] == ["not installed", "following gadgets.example.org"]


def test_an_unreachable_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_kinds, "RETRY_SECONDS", 0.01)
    asked = threading.Semaphore(0)

    def serves(_: Resource) -> bool:
        asked.release()
        raise errors.Unreachable("away")

    found = OptionalKinds(serves, [KIND], informer)  # type: ignore[arg-type]
    found.start()
    assert all(asked.acquire(timeout=SECONDS) for _ in range(3))
    assert not found.wait_discovered(0)
    found.stop()


def test_the_search_for_kinds_is_late_while_it_hangs() -> None:
    clock, asked, held = Clock(), threading.Event(), threading.Event()
    turns = Turns(clock)

    def serves(_: Resource) -> bool:
        asked.set()
        return not held.wait(SECONDS)

    found = OptionalKinds(serves, [KIND], informer)  # type: ignore[arg-type]
    found.start(turns)
    try:
        assert asked.wait(SECONDS)
        clock.step(31)
        assert turns.late() == ("kinds/gadgets",)
    finally:
        held.set()
    assert found.wait_discovered(SECONDS)
    until(lambda: turns.late() == ())
    found.stop()


def test_stop_before_start_does_nothing() -> None:
    OptionalKinds(lambda _: True, [KIND], informer).stop()  # type: ignore[arg-type]


def test_counters_of_a_pod_group_do_not_change_its_view() -> None:
    body = gadget("one", phase="Running", running=1, conditions=[{"type": "Scheduled", "status": "True"}])
    body["metadata"] |= {"namespace": "a"}
    more = body | {"status": body["status"] | {"running": 7}}
    assert optional_kinds.foreign_view(body) == optional_kinds.foreign_view(more)
    assert optional_kinds.foreign_view(body) != optional_kinds.foreign_view(body | {"status": {"phase": "Pending"}})
    assert optional_kinds.foreign_view({"metadata": {"namespace": "a", "name": "b"}}).job is None


def test_changes_of_a_pod_group_reconcile_its_job_after_a_delay_and_once_more(
    embedded_cluster: KubernetesCluster, clock: Clock
) -> None:
    desk = Desk(embedded_cluster, clock)
    key = JobKey("a", "train", "u")
    for number in range(100):
        desk.watches._foreign_changed(None, ForeignView(key, (number,)))
    assert desk.watches.take(9) == []
    desk.settling.step(1.0)
    assert desk.watches.take(9) == [(key, 0, False)]
    desk.settling.step(1.0)
    assert desk.watches.take(9) == [(key, 0, False)]  # a worker's cache may have been further behind
    same = ForeignView(key, (1,))
    desk.watches._foreign_changed(same, same)
    desk.settling.step(3.0)
    assert desk.watches.take(9) == []
    desk.settling.step(1.0)
    assert desk.watches.take(9) == []


def test_a_new_kind_reconciles_the_jobs_that_hold_room(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock) as desk:
        desk.queue("a", quota={"jobs": 1})
        desk.begin()
        admitted, waits = (desk.submit(name, namespace, "a") for name in ("one", "two"))
        desk.until(lambda: desk.phase(admitted) == "Admitted" and desk.waiting() == {waits})
        desk.settling.step(1.0)
        desk.watches.take(99)
        desk.watches.foreign.on_found()
        assert [each.key for each in desk.watches.take(99)] == [admitted]


def test_a_worker_reacts_to_a_kind_that_is_installed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[Resource] = set()

    class Server:
        def serves(self, resource: Resource) -> bool:
            return resource in there

    caches = WorkerCaches(Server(), Settings.model_validate({}))  # type: ignore[arg-type]
    monkeypatch.setattr(Informer, "start", lambda *_: None)
    monkeypatch.setattr(Informer, "stop", lambda _: None)
    made = partial(reconcile_settings, Settings.model_validate({}))
    caches.set_on_found(lambda: chosen.append(made(caches.served).version(RECREATE_REQUESTS) is not None))
    chosen: list[bool] = []
    for _ in range(2):
        caches.groups.discover()
        caches.recreations.discover()
        there.add(RECREATE_REQUESTS)
    assert chosen == [True]


@pytest.mark.parametrize(
    ("served", "followed"),
    [
        ({RECREATE_REQUESTS}, {RECREATE_REQUESTS}),
        ({ALPHA_RECREATE_REQUESTS}, {ALPHA_RECREATE_REQUESTS}),
        ({RECREATE_REQUESTS, ALPHA_RECREATE_REQUESTS}, {RECREATE_REQUESTS}),
        (set(), set()),
    ],
)
def test_a_worker_follows_requests_in_the_newest_version_that_is_served(
    monkeypatch: pytest.MonkeyPatch, served: set[Resource], followed: set[Resource]
) -> None:
    class Server:
        def serves(self, resource: Resource) -> bool:
            return resource in served

    caches = WorkerCaches(Server(), Settings.model_validate({}))  # type: ignore[arg-type]
    monkeypatch.setattr(Informer, "start", lambda *_: None)
    for _ in range(2):
        caches.recreations.discover()
    assert caches.served == followed
    assert {informer.resource for informer in caches.recreations.informers} == followed


@pytest.mark.parametrize(
    ("chosen", "served", "expected"),
    [
        ({}, (), ("none", "auto")),
        ({}, (POD_GROUPS,), ("volcano", "auto")),
        ({}, (RECREATE_REQUESTS,), ("none", "auto")),
        ({"gang_scheduler": "none", "in_place": "local"}, (POD_GROUPS, RECREATE_REQUESTS), ("none", "local")),
        ({"gang_scheduler": "koordinator", "in_place": "kruise"}, (), ("koordinator", "kruise")),
    ],
)
def test_installed_kinds_decide_settings_that_the_admin_leaves_open(
    chosen: dict[str, str], served: tuple[Resource, ...], expected: tuple[str, str]
) -> None:
    found = reconcile_settings(Settings.model_validate(chosen), served)
    assert (found.gang_scheduler, found.in_place) == expected


def test_a_reconcile_takes_the_settings_of_the_admin_by_their_names() -> None:
    chosen = {"parallel_writes": 3, "leaving_taints": "example.org/leaving", "topology_labels": "rack,host"}
    settings = Settings.model_validate(chosen)
    found = reconcile_settings(settings)
    assert found.parallel_writes == 3
    assert (found.taints_of_leaving_nodes, found.topology) == ({"example.org/leaving"}, ("rack", "host"))
    own = {each.name for each in fields(found) if not hasattr(settings, each.name)}
    assert own == {"make_pods", "served", "reports", "most_seconds", "cache_wait", "name_retry"}


@pytest.mark.parametrize(
    ("chosen", "followed", "asked"),
    [
        ({}, {"pods", "tenantqueues", "nodes"}, len(optional_kinds.KINDS)),
        ({"in_place": "recreate"}, {"pods", "tenantqueues", "nodes"}, len(backends.KINDS)),
        ({"pods": "none"}, {"pods", "tenantqueues"}, 0),
    ],
)
def test_a_worker_follows_only_the_kinds_that_its_settings_need(
    chosen: dict[str, str], followed: set[str], asked: int
) -> None:
    kinds_asked: list[Resource] = []

    class Server:
        def serves(self, resource: Resource) -> bool:
            kinds_asked.append(resource)
            return False

    caches = WorkerCaches(Server(), Settings.model_validate(chosen))  # type: ignore[arg-type]
    assert {each.resource.plural for each in caches.informers} == followed
    for each in (caches.groups, caches.recreations):
        each.start()
        assert each.wait_discovered(SECONDS)
    caches.stop()
    assert len(kinds_asked) == asked


@pytest.mark.parametrize("served", [NATIVE_POD_GROUPS, ALPHA_POD_GROUPS])
def test_kind_that_is_served_in_another_version_is_not_called_missing(
    served: Resource, caplog: pytest.LogCaptureFixture
) -> None:
    followed = SimpleNamespace(start=lambda _: None)
    found = OptionalKinds(
        lambda kind: kind == served, [NATIVE_POD_GROUPS, ALPHA_POD_GROUPS, POD_GROUPS], lambda _: cast(Any, followed)
    )
    with caplog.at_level(logging.INFO, "coordinator.cache.optional_kinds"):
        found.discover()
    said = [record.getMessage().partition(";")[0] for record in caplog.records]
    assert said == ["following podgroups.scheduling.k8s.io", "not installed: podgroups.scheduling.volcano.sh"]
