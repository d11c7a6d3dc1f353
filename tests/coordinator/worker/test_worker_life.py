"""The probes of a worker process on a real Redis, asked while each of its loops hangs in turn."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from coordinator.http import life_port
from coordinator.life import health_checks
from coordinator.port_settings import ANY_PORT
from coordinator.settings import Settings
from coordinator.worker import process
from coordinator.worker.worker_life import WorkerLife
from kube import client
from kube.client import KubernetesCluster
from kube.process.turns import Turns
from kube.settings import ConnectionSettings
from queues import redis_keys
from queues.dispatch.intake import Intake
from queues.dispatch.lease_renewer import LeaseRenewer
from queues.dispatch.rq_worker import BatchWorker
from queues.redis import connection
from queues.registrations import StoreIdentity
from queues.storage.redis_store import RedisStore
from tests.support import redis_server
from tests.support.clock import Clock
from tests.support.coordinator.hangs import Call, Hangs, ask, failing
from tests.support.kube.servers import Server
from tests.support.waiting import until

CALLS: dict[str, Call] = {
    "batches": (BatchWorker, "_is_suspended"),
    "lease-keeper": (LeaseRenewer, "renew"),
}
"""By loop, a call that the loop makes in each of its turns."""


def run(server: Server, settings: Settings, life: WorkerLife, script: Callable[[], None]) -> None:
    """Run a worker in this thread, and the script in another thread. The end of the script stops the worker."""

    def play() -> None:
        try:
            script()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(play)
        process.run(client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig))), settings, life)
        done.result()


@pytest.mark.proof
@pytest.mark.redis_server
@pytest.mark.usefixtures("own_signals")
def test_healthz_of_a_worker_names_each_loop_while_it_hangs(
    embedded_server: Server, embedded_cluster: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, clock = Hangs(CALLS, monkeypatch), Clock()
    life = WorkerLife(Turns(clock))
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server.running(tmp_path / "redis.sock"))
        RedisStore(connection.connect(redis, client_name="test")).rebuild(1, [], [])
        settings = Settings(redis_url=redis, metrics_port=ANY_PORT, running_lease_seconds=0.3, threads=1)
        url = stack.enter_context(life_port.serving(settings, life))
        assert failing(url, "readyz") == ["[-]registration failed: the caches are not read yet"]

        def script() -> None:
            until(lambda: ask(f"{url}/readyz") == (200, ["ok"]))
            for name in CALLS:
                with hangs.hanging(name, lambda: None):
                    clock.step(31)
                    until(lambda: len(failing(url)) == 1)
                    assert failing(url) == [f"[-]{name} failed: it has not turned for 31 s"]
                until(lambda: ask(f"{url}/healthz") == (200, ["ok"]))
            clock.step(3_600)
            until(lambda: ask(f"{url}/healthz") == (200, ["ok"]))

        run(embedded_server, settings, life, script)
        clock.step(3_600)
        assert ask(f"{url}/healthz") == (200, ["ok"]), "loops that have ended need not turn"
        assert failing(url, "readyz") == ["[-]shutdown failed: the process is stopping"]


def test_a_worker_that_once_registered_stays_ready_without_redis_and_not_beside_another_layout() -> None:
    intake = Intake()
    life = WorkerLife(intake=intake)
    intake.fail("Redis is away")
    assert health_checks.problems(life.readyz()) == "registration: Redis is away"
    intake.learn(StoreIdentity(redis_keys.OWN_LAYOUT, 1, ""))
    assert health_checks.problems(life.readyz()) == ""
    intake.fail("Redis is away")
    assert health_checks.problems(life.readyz()) == ""
    assert [check.note for check in life.readyz() if check.note] == ["Redis is away"]
    intake.learn(StoreIdentity(redis_keys.OWN_LAYOUT + 1, 1, ""))
    assert health_checks.problems(life.readyz()) == f"batches: {intake.refusal}" != "batches: "
