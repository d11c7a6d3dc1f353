"""The port for probes of a coordinator, asked while each of its loops hangs in turn."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from coordinator.cache import views
from coordinator.errors import CoordinatorError
from coordinator.health.completions import Completions
from coordinator.health.hang_watch import HangWatch
from coordinator.http import coordinator_server, life_port
from coordinator.leader.control_loop import ControlLoop
from coordinator.leader.coordinator import Coordinator
from coordinator.leader.election import LeaderElection
from coordinator.leader.queue_statuses import QueueStatuses
from coordinator.leader.reasons import Reasons
from coordinator.leader.status_writer import StatusWriter
from coordinator.port_settings import ANY_PORT, PortSettings
from coordinator.settings import Settings
from kube.client import KubernetesCluster
from kube.process.turns import Turns
from tests.doubles.memory_reports import MemoryReports
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.support.clock import Clock
from tests.support.coordinator import desk as desks
from tests.support.coordinator.hangs import Call, Hangs, ask, failing
from tests.support.waiting import SECONDS, until

CALLS: dict[str, Call] = {
    "term": (ControlLoop, "step"),
    "election": (LeaderElection, "step"),
    "queue-status": (QueueStatuses, "look"),
    "reasons": (Reasons, "look"),
    "statuses": (StatusWriter, "step"),
    "health": (HangWatch, "look"),
    "completions": (Completions, "look"),
    "watch/torchjobs.train.distributed.io": (views, "job_view"),
}
"""By loop, a call that the loop makes in each of its turns."""


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Hangs:
    for each in (QueueStatuses, Reasons, HangWatch, Completions):
        monkeypatch.setattr(each, "seconds", 0.02)
    return Hangs(CALLS, monkeypatch)


@pytest.fixture
def coordinator(embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, hangs: Hangs) -> Coordinator:
    store = MemoryStore(lambda *_: None)
    work = MemoryWork(lambda: 0.0, store.epoch, lambda _: None)
    options = Settings(
        lease_namespace=namespace, pool="none", lease_seconds=60.0, renew_deadline=55.0, renew_seconds=0.1
    )
    return Coordinator(embedded_cluster, store, work, options, turns=Turns(clock))


@contextmanager
def running(coordinator: Coordinator, cluster: KubernetesCluster) -> Iterator[None]:
    """Run all loops of a coordinator."""
    reports = MemoryReports(lambda: 0.0)
    statuses, watches = coordinator.statuses, coordinator.watches
    hangs = HangWatch(statuses.jobs, watches, coordinator.store, reports)
    completions = Completions(cluster, statuses.jobs, watches)
    loops = (statuses, QueueStatuses(statuses.queues, watches), coordinator.reasons, hangs, completions)
    stop, turns = coordinator.stop, coordinator.turns
    calls = [coordinator.run]
    calls += [lambda each=each: each.run(stop, lambda: coordinator.leadership.leading, turns) for each in loops]
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


@pytest.mark.proof
def test_healthz_names_each_loop_while_it_hangs_and_no_other(
    coordinator: Coordinator, embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, hangs: Hangs
) -> None:
    def poke() -> None:
        embedded_cluster.create(desks.TORCHJOBS, desks.manifest(f"job-{int(clock.now)}", "a"), namespace)

    with ExitStack() as stack:
        url = stack.enter_context(
            life_port.serving(PortSettings(metrics_port=ANY_PORT), coordinator_server.life(coordinator))
        )
        stack.enter_context(running(coordinator, embedded_cluster))
        until(lambda: coordinator.counts.rebuilds == 1)
        for name in CALLS:
            with hangs.hanging(name, poke):
                clock.step(31)
                until(lambda: len(failing(url)) == 1)
                assert failing(url) == [f"[-]{name} failed: it has not turned for 31 s"]
                assert ask(f"{url}/healthz")[0] == 503
            until(lambda: ask(f"{url}/healthz") == (200, ["ok"]))
        assert ask(f"{url}/readyz") == (200, ["ok"])
        assert coordinator.counts.rebuilds == 1, "no loop hung for a lease"


def test_the_port_of_probes_answers_nothing_else_and_no_other_host(coordinator: Coordinator) -> None:
    with life_port.serving(PortSettings(metrics_port=ANY_PORT), coordinator_server.life(coordinator)) as url:
        assert ask(f"{url}/v1/queues") == (404, ["try /healthz, /readyz or /metrics"])
        request = urllib.request.Request(f"{url}/healthz", headers={"Host": "example.org"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=SECONDS)


def test_a_port_that_is_taken_is_named_with_its_setting(coordinator: Coordinator) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        settings, probes = PortSettings(metrics_port=port), coordinator_server.life(coordinator)
        with (
            pytest.raises(CoordinatorError, match=rf"^metrics_port 127\.0\.0\.1:{port}: .*in use"),
            life_port.serving(settings, probes),
        ):
            pass
    with life_port.serving(PortSettings(), probes) as url:
        assert url == ""
