"""The coordinator's main loop: it leads, survives failures of Redis and of the API server, and stops on request."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.http import coordinator_server
from coordinator.leader import coordinator as coordinator_process
from coordinator.leader import election
from coordinator.leader.coordinator import Coordinator
from coordinator.leader.election import EPOCH_ANNOTATION
from coordinator.metrics import leader_metrics, process_metrics
from coordinator.rbac.permissions import LEASE
from coordinator.settings import Settings
from crds.api_resources import LEASES, TENANT_QUEUES
from kube import client
from kube.client import KubernetesCluster
from kube.process.meter import Metric
from kube.process.turns import Turns
from kube.settings import ConnectionSettings, RetrySettings
from queues import errors
from tests.doubles.memory_content import Content
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.doubles.recording_meter import RecordingMeter
from tests.support import ports
from tests.support.clock import Clock
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk
from tests.support.waiting import SECONDS, until

AWAY = "Redis at redis://127.0.0.1:6379/0 does not answer: Connection refused"
QUICK = {"pool": "none", "lease_seconds": 60.0, "renew_deadline": 55.0, "renew_seconds": 0.1, "settle_seconds": 0.01}
SHORT = {"lease_seconds": 0.6, "renew_deadline": 0.5}
"""The settings of a lease that a test lets expire."""


class Place:
    """A store and its work queue, which can be lost or unreachable."""

    def __init__(self, content: Content | None = None) -> None:
        self.content = content or Content()
        reader = MemoryStore(lambda *_: None, content=self.content)
        self.work = MemoryWork(lambda: 0.0, reader.epoch, lambda key: reader.reservations([key]).get(key))
        self._store = MemoryStore(self.work.mark, content=self.content)
        self.away = ""
        self.hang: threading.Event | None = None
        """An event for which every reading of the queues waits."""
        self.hangs = threading.Event()
        self.during_rebuild: Callable[[], object] = lambda: None
        self.refused = 0

    def lose(self) -> None:
        fresh = Content()
        for name in Content.__slots__:
            setattr(self.content, name, getattr(fresh, name))

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def asked(*args: Any) -> Any:
            if self.hang is not None and verb == "snapshot":
                self.hangs.set()
                self.hang.wait(SECONDS)
            if verb == "rebuild":
                self.during_rebuild()
            if self.away and verb != "claim":  # which asks nobody
                self.refused += 1
                raise errors.StoreUnreachable(self.away)
            return getattr(self._store, verb)(*args)

        return asked


@pytest.fixture
def nobody() -> Iterator[str]:
    """Yield the address of an API server that does not exist."""
    with ports.reserve() as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running(
    cluster: KubernetesCluster, place: Place, namespace: str, clock: Clock | None = None, **settings: Any
) -> Iterator[Coordinator]:
    chosen = Settings(**{**QUICK, "lease_namespace": namespace, **settings})
    turns = Turns(clock) if clock else Turns()
    coordinator = Coordinator(cluster, place, place.work, chosen, turns=turns, meter=RecordingMeter())
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        yield coordinator
    finally:
        coordinator.stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


def lease(cluster: KubernetesCluster, namespace: str) -> tuple[str, str]:
    found = cluster.get(LEASES, LEASE, namespace)
    return found["spec"].get("holderIdentity", ""), found["metadata"]["annotations"][EPOCH_ANNOTATION]


def rebuilds(coordinator: Coordinator) -> dict[str, int]:
    """Return how often the queues were rebuilt, by cause."""
    assert isinstance(coordinator.meter, RecordingMeter)
    counts = dict(coordinator.meter.counts)
    return {labels[0]: count for (name, *labels), count in counts.items() if name == "torchq_rebuilds_total"}


def shown_epoch(coordinator: Coordinator) -> float | None:
    """Return the epoch on the metrics page of a coordinator; None if the page has none."""
    return shown(coordinator, leader_metrics.EPOCH)


def shown(coordinator: Coordinator, metric: Metric) -> float | None:
    """Return the value of a metric on the metrics page of a coordinator; None if the page has none."""
    found = coordinator_server.samples(coordinator)
    return next((each.cells[0] for each in found if each.metric is metric), None)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == coordinator_process.log.name]


def test_a_coordinator_leads_picks_and_releases_the_lease_at_its_stop(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    place = Place()
    queue = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": "a"}}
    embedded_cluster.create(TENANT_QUEUES, queue)
    with running(embedded_cluster, place, namespace) as coordinator:
        until(lambda: coordinator.counts.rebuilds == 1)
        embedded_cluster.create(desks.TORCHJOBS, desks.manifest("train", "a"), namespace)
        until(lambda: coordinator.counts.picked == 1)
        assert lease(embedded_cluster, namespace) == (coordinator.leadership.holder, "1")
        assert coordinator.failing == ""
    assert lease(embedded_cluster, namespace) == ("", "1")


def test_a_second_coordinator_takes_over_at_once_when_the_first_stops(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    place = Place()
    with running(embedded_cluster, place, namespace) as first:
        until(lambda: first.leadership.leading)
        with running(embedded_cluster, place, namespace) as second:
            until(lambda: second.leadership.holder == first.leadership.holder)
            assert not second.leadership.leading
            first.stop.set()
            until(lambda: second.counts.rebuilds == 1)
            assert place.content.epoch == 2


def test_an_unreachable_redis_is_logged_once_and_waited_for(
    embedded_cluster: KubernetesCluster,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_process, "RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    place = Place()
    with running(embedded_cluster, place, namespace) as coordinator:
        until(lambda: coordinator.counts.rebuilds == 1)
        place.away = AWAY
        until(lambda: coordinator.failing == place.away)
        assert told(caplog)[-1:] == [place.away]
        place.away = ""
        until(lambda: coordinator.counts.rebuilds == 2)
        until(lambda: coordinator.failing == "")
        until(lambda: told(caplog).count(AWAY) == 1 and "all is well again" in told(caplog))


def test_no_coordinator_leads_while_redis_is_unreachable_for_all(
    embedded_cluster: KubernetesCluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place()
    place.away = AWAY
    with running(embedded_cluster, place, namespace) as one, running(embedded_cluster, place, namespace) as two:
        until(lambda: place.refused > 8)
        assert [one.leadership.failing, two.leadership.failing] == [AWAY, AWAY]
        assert "holderIdentity" not in embedded_cluster.get(LEASES, LEASE, namespace).get("spec", {})
        place.away = ""
        until(lambda: one.counts.rebuilds + two.counts.rebuilds == 1)
        until(lambda: not one.leadership.failing and not two.leadership.failing)
    said = [each.getMessage() for each in caplog.records if each.name == election.log.name]
    assert said.count(f"not leading: {AWAY}") == 2  # once for each coordinator


def test_a_leader_without_redis_yields_to_a_coordinator_that_reaches_it(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    here = Place()
    there = Place(here.content)
    with running(embedded_cluster, here, namespace, **SHORT) as first:
        until(lambda: first.counts.rebuilds == 1)
        with running(embedded_cluster, there, namespace, **SHORT) as second:
            here.away = AWAY
            until(lambda: second.counts.rebuilds == 1)
            assert here.content.epoch == 2
            assert not first.leadership.leading
            assert (shown_epoch(first), shown_epoch(second)) == (None, 2.0)
            here.away, there.away = "", AWAY  # and the other way round: the first coordinator leads again
            until(lambda: first.counts.rebuilds == 2)
            assert here.content.epoch == 3
            assert not second.leadership.leading
            assert (shown_epoch(first), shown_epoch(second)) == (3.0, None)


def test_a_leader_gives_up_the_lease_while_its_store_takes_no_writes(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    place = Place()
    with running(embedded_cluster, place, namespace, **SHORT) as coordinator:
        until(lambda: coordinator.counts.rebuilds == 1)
        place.content.problem = "Redis at redis://127.0.0.1:6379/0 is a read-only replica"
        place.content.epoch = 0
        until(lambda: not coordinator.leadership.leading)
        until(lambda: lease(embedded_cluster, namespace) == ("", "1"))
        until(lambda: coordinator.leadership.failing == place.content.problem)
        assert coordinator.counts.rebuilds == 1
        assert shown(coordinator, process_metrics.REDIS_FIT) == 0.0
        place.content.problem = ""
        until(lambda: coordinator.counts.rebuilds == 2)


def test_two_installations_do_not_depose_each_other_on_one_store(
    embedded_cluster: KubernetesCluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place()
    with running(embedded_cluster, place, namespace, **SHORT) as first:
        until(lambda: first.counts.rebuilds == 1)
        with running(embedded_cluster, Place(place.content), "kube-public", **SHORT) as second:
            until(lambda: "belongs to another installation" in second.leadership.failing)
            assert f"Lease in namespace {namespace}" in second.leadership.failing
            assert not second.leadership.leading
        assert (first.counts.rebuilds, place.content.epoch) == (1, 1)


def test_a_lost_store_is_rebuilt_with_a_higher_epoch(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    place = Place()
    with running(embedded_cluster, place, namespace, **SHORT) as coordinator:
        until(lambda: coordinator.counts.rebuilds)
        place.lose()
        until(lambda: coordinator.counts.rebuilds > 1)
        assert place.content.epoch > 1
        until(lambda: rebuilds(coordinator).keys() == {"Election", "StoreLost"})


def test_a_restart_of_redis_causes_a_rebuild(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    place = Place()
    with running(embedded_cluster, place, namespace) as coordinator:
        until(lambda: coordinator.counts.rebuilds == 1)
        place.content.incarnation = "second"
        until(lambda: coordinator.counts.rebuilds == 2)
        place.content.incarnation = "third"
        until(lambda: coordinator.counts.rebuilds == 3)
        assert place.content.epoch == 3
        until(lambda: rebuilds(coordinator) == {"Election": 1, "RedisReplaced": 2})


def test_a_rebuild_exceeds_the_epoch_of_an_old_store_at_once(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    place = Place()
    place.content.epoch = 5_000
    with running(embedded_cluster, place, namespace) as coordinator:
        until(lambda: coordinator.counts.rebuilds == 1)
        assert place.content.epoch == 5_001
        assert lease(embedded_cluster, namespace)[1] == "5001"


@pytest.mark.servers
def test_an_unreachable_api_server_is_logged_once_and_does_not_delay_the_stop(
    tmp_path: Path, nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "away",
                "clusters": [{"name": "away", "cluster": {"server": nobody}}],
                "users": [{"name": "away", "user": {}}],
                "contexts": [{"name": "away", "context": {"cluster": "away", "user": "away"}}],
            }
        )
    )
    retries = RetrySettings(attempts=2, base_seconds=0.01)
    away = client.connect(ConnectionSettings(kubeconfig=str(kubeconfig), retries=retries))
    with running(away, Place(), "default") as coordinator:
        until(lambda: coordinator.failing)
        assert nobody in coordinator.failing
    assert told(caplog) == [coordinator.failing]
    assert len(caplog.records) <= 1 + len(coordinator.watches.informers)
    away.close()


def test_an_idle_coordinator_is_not_woken(desk: Desk, namespace: str) -> None:
    desk.submit("waits", namespace, "nowhere")
    desk.begin()
    desk.until(lambda: not desk.term.unsettled)

    def idle() -> bool:
        desk.watches.wake.clear()
        return not desk.term.step() and not desk.watches.wake.is_set()

    until(idle)


def test_a_leader_whose_term_hangs_gives_up_the_lease_and_another_leads(
    embedded_cluster: KubernetesCluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, content, awake = Clock(), Content(), threading.Event()
    hanging, other = Place(content), Place(content)
    with ExitStack() as stack:
        first = stack.enter_context(running(embedded_cluster, hanging, namespace, clock))
        until(lambda: first.counts.rebuilds == 1)
        second = stack.enter_context(running(embedded_cluster, other, namespace))
        until(lambda: second.leadership.holder == first.leadership.identity)
        hanging.hang = awake
        first.watches.touch_settings()
        assert hanging.hangs.wait(SECONDS)
        try:
            clock.step(59)
            assert first.leadership.leading, "the loop has not hung for a whole lease yet"
            clock.step(1)
            until(lambda: second.counts.rebuilds == 1)
            assert not first.leadership.leading
            assert lease(embedded_cluster, namespace) == (second.leadership.identity, "2")
            assert "not leading: the term has not turned for over 60 s" in caplog.text
            assert "term" in first.turns.late()
        finally:
            awake.set()
        hanging.hang = None
        until(lambda: not first.leadership.failing and "term" not in first.turns.late())
        assert lease(embedded_cluster, namespace) == (second.leadership.identity, "2")
        assert content.epoch == 2


def test_a_long_rebuild_is_no_hang(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    clock, place, late, known = Clock(), Place(), [], threading.Event()

    def rebuild() -> None:
        assert known.wait(SECONDS)
        clock.step(119)
        late.append(("term" in coordinator.turns.late(), coordinator.leadership.step(), coordinator.leadership.leading))

    place.during_rebuild = rebuild
    with running(embedded_cluster, place, namespace, clock) as coordinator:
        known.set()
        until(lambda: coordinator.counts.rebuilds == 1)
    assert late == [(False, "", True)]
