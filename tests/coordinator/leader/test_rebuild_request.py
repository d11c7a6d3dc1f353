"""The repair of Redis, which a user requests from the leader through its Lease, and the command that requests the
repair.
"""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator.cli import main
from coordinator.cli.commands import doctor
from coordinator.doctor import state_checks
from coordinator.doctor.collect import Collector
from coordinator.leader import election, rebuild_request
from coordinator.leader.coordinator import Coordinator
from coordinator.rbac.permissions import LEASE
from coordinator.settings import Settings
from crds import labels
from crds.api_resources import CONFIG_MAPS, LEASES, TENANT_QUEUES
from kube.client import KubernetesCluster
from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from tests.coordinator.leader.test_coordinator import QUICK
from tests.doubles.fake_redis import FakeRedis
from tests.support import ports
from tests.support.coordinator import desk as desks
from tests.support.kube.servers import Server
from tests.support.queues.builders import registration
from tests.support.queues.private_redis import redis_url
from tests.support.waiting import until

__all__ = ["redis_url"]

Torchq = Callable[..., Result]


class Coordinated:
    """Redis and the coordinators that work on it, in this process."""

    def __init__(self, cluster: KubernetesCluster, client: connection.Connection, namespace: str) -> None:
        self.cluster, self.client, self.namespace = cluster, client, namespace
        self.store, self.work = RedisStore(client), RedisWork(client)
        self.looker = Collector(cluster, self.store, self.work, namespace)
        self.running: list[tuple[Coordinator, threading.Thread]] = []

    def start(self, resync_seconds: float = 0.5) -> Coordinator:
        self.work.register(registration("worker", 8))
        lease = {"lease_namespace": self.namespace, "lease_seconds": 1.0, "renew_deadline": 0.8}
        ours = {**lease, "resync_seconds": resync_seconds}
        settings = Settings(**{**QUICK, **ours})
        desk = Coordinator(self.cluster, RedisStore(self.client), RedisWork(self.client), settings)
        self.running.append((desk, threading.Thread(target=desk.run)))
        self.running[-1][1].start()
        return desk

    def led(self, resync_seconds: float = 0.5) -> Coordinator:
        desk = self.start(resync_seconds)
        until(lambda: desk.counts.rebuilds == 1)
        return desk

    def stop(self) -> None:
        for desk, thread in self.running:
            desk.stop.set()
            thread.join(60)
            assert not thread.is_alive()
        self.running.clear()

    def codes(self) -> list[str]:
        return [each.code for each in state_checks.compare(self.looker.collect())]

    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.cluster.get(LEASES, LEASE, self.namespace)["metadata"]["annotations"]
        return found


@pytest.fixture
def coordinated(embedded_cluster: KubernetesCluster, namespace: str) -> Iterator[Coordinated]:
    queue = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": "a"}}
    embedded_cluster.create(TENANT_QUEUES, queue)
    for item in embedded_cluster.list(CONFIG_MAPS, label_selector=labels.CODE).items:  # of earlier tests
        embedded_cluster.delete(CONFIG_MAPS, item["metadata"]["name"], item["metadata"]["namespace"])
    fake = FakeRedis()
    found = Coordinated(embedded_cluster, fake, namespace)
    yield found
    found.stop()
    fake.close()


def test_the_leader_repairs_every_disagreement_on_request(coordinated: Coordinated) -> None:
    desk = coordinated.led(resync_seconds=3600)  # a resync would repair the key by offering it
    key = desks_submit(coordinated)
    client = coordinated.client
    until(lambda: desk.counts.picked == 1 and b'"leased"' in (client.hget(redis_keys.RECORDS, key) or b""))
    assert coordinated.codes() == []
    for name in ("", "a"):
        client.hset(redis_keys.USAGE, name, b'{"cpu":5000,"jobs":7}')
    client.set("torchq:junk", 1)
    client.hset("rq:job:h1", "data", '["os.system", null, ["true"], {}]')
    client.hset(redis_keys.RECORDS, key, '{"state":"nonsense"}')
    wrong = {"leaked-charge", "unknown-key", "foreign-rq-job", "stuck-key"}
    assert set(coordinated.codes()) - {"stray-lease"} == wrong  # the key may have been leased
    epoch = coordinated.store.epoch()
    coordinated.looker.repair(60)
    assert coordinated.codes() == []
    assert coordinated.store.epoch() > epoch
    assert not rebuild_request.pending_request(coordinated.cluster.get(LEASES, LEASE, coordinated.namespace))
    until(lambda: coordinated.store.inspect().reservations)  # the job is picked again


def desks_submit(coordinated: Coordinated) -> str:
    body = desks.manifest("train", "a")
    made = coordinated.cluster.create(desks.TORCHJOBS, body, coordinated.namespace)["metadata"]
    return f"{coordinated.namespace}/train/{made['uid']}"


def test_a_repair_reconciles_finished_jobs_since_some_have_to_be_deleted(coordinated: Coordinated) -> None:
    desk = coordinated.led()
    key = desks_submit(coordinated)
    until(lambda: desk.counts.picked == 1)
    status = {"status": {"phase": "Succeeded"}}
    coordinated.cluster.patch(desks.TORCHJOBS, "train", status, coordinated.namespace, subresource="status")
    until(lambda: not coordinated.store.inspect().reservations)
    coordinated.client.hdel(
        redis_keys.RECORDS, key
    )  # as if the record of a worker that waits to delete the job were lost
    coordinated.looker.repair(60)
    until(lambda: coordinated.client.hexists(redis_keys.RECORDS, key))


def test_a_repair_request_survives_a_change_of_the_leader(coordinated: Coordinated) -> None:
    coordinated.led()
    coordinated.stop()
    coordinated.client.set("torchq:junk", 1)
    asked = {"metadata": {"annotations": {rebuild_request.REQUEST_ANNOTATION: "word"}}}
    coordinated.cluster.patch(LEASES, LEASE, asked, coordinated.namespace)
    coordinated.led()
    until(lambda: coordinated.annotations().get(rebuild_request.DONE_ANNOTATION) == "word")
    assert not coordinated.client.exists("torchq:junk")


def test_a_repair_request_is_carried_out_once(coordinated: Coordinated) -> None:
    desk = coordinated.led()
    coordinated.looker.repair(60)
    rebuilds = desk.counts.rebuilds
    renewed = coordinated.cluster.get(LEASES, LEASE, coordinated.namespace)["spec"]["renewTime"]
    until(lambda: coordinated.cluster.get(LEASES, LEASE, coordinated.namespace)["spec"]["renewTime"] > renewed)
    assert desk.counts.rebuilds == rebuilds == 2


def test_repair_without_a_leader_is_an_error(coordinated: Coordinated) -> None:
    coordinated.led()
    coordinated.stop()
    with pytest.raises(rebuild_request.RebuildNotDone, match="no coordinator leads"):
        coordinated.looker.repair(60)
    assert rebuild_request.REQUEST_ANNOTATION not in coordinated.annotations()


def test_repair_names_a_leader_that_does_not_answer(coordinated: Coordinated) -> None:
    coordinated.led()
    coordinated.stop()
    coordinated.cluster.patch(LEASES, LEASE, {"spec": {"holderIdentity": "sleeper"}}, coordinated.namespace)
    with pytest.raises(
        rebuild_request.RebuildNotDone, match=r"the leader \(sleeper\) has not rebuilt the queues within 0 s"
    ):
        coordinated.looker.repair(0.0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda client: client.hset(redis_keys.ACCOUNTS, "a", "[1]"),
        lambda client: client.hset(redis_keys.RESERVATIONS, "x", "[]"),
        lambda client: (client.delete(redis_keys.QUEUES), client.set(redis_keys.QUEUES, "x")),
    ],
)
def test_unreadable_queues_are_rebuilt_without_a_request(
    coordinated: Coordinated, spoil: Callable[[connection.Connection], object]
) -> None:
    desk = coordinated.led()
    spoil(coordinated.client)
    desk.watches.touch_settings()
    desks_submit(coordinated)
    until(lambda: desk.counts.rebuilds > 1 and desk.counts.picked > 0)
    assert "broken-key" not in coordinated.codes()


# The command.


@pytest.fixture
def torchq(embedded_server: Server, namespace: str, redis_url: str) -> Iterator[Torchq]:
    client = connection.connect(redis_url, client_name="test")
    client.flushall()

    def run(*arguments: str, code: int, **environ: str) -> Result:
        given = {
            "TORCHQ_KUBECONFIG": str(embedded_server.kubeconfig),
            "TORCHQ_REDIS_URL": redis_url,
            "TORCHQ_LEASE_NAMESPACE": namespace,
            **environ,
        }
        result = CliRunner().invoke(main.main, ["doctor", "--settle", "0", *arguments], env=given, prog_name="torchq")
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.output
        return result

    yield run
    client.close()


@pytest.fixture
def led(embedded_cluster: KubernetesCluster, namespace: str, redis_url: str, torchq: Torchq) -> Iterator[Coordinated]:
    client = connection.connect(redis_url, client_name="test")
    found = Coordinated(embedded_cluster, client, namespace)
    found.led()
    yield found
    found.stop()
    client.close()


def test_doctor_prints_disagreements_and_fix_repairs_them(torchq: Torchq, led: Coordinated) -> None:
    assert torchq(code=0).stdout == "cluster, queues and RQ agree\n"
    for number in range(doctor.ROWS_PER_CODE + 3):
        led.client.set(f"torchq:junk-{number:02}", 1)
    told = torchq(code=1).output
    assert told.splitlines()[0].split() == ["CODE", "SUBJECT", "WHAT"]
    assert told.count("unknown-key   torchq:junk-") == doctor.ROWS_PER_CODE
    assert "unknown-key (3 more, see -o json): torchq doctor --fix removes it" in told
    shown = json.loads(torchq("-o", "json", code=1).stdout)
    assert shown["agree"] is False
    assert len(shown["disagreements"]) == doctor.ROWS_PER_CODE + 3
    assert shown["disagreements"][0] == {
        "code": "unknown-key",
        "subject": "torchq:junk-00",
        "message": "is under torchq's or RQ's prefix, but neither makes such a key",
        "mends": "torchq doctor --fix removes it; find out who may write to Redis",
        "harmless": False,
    }
    mended = torchq("--fix", code=0).stdout.splitlines()
    counted = f"{doctor.ROWS_PER_CODE + 3} unknown-key"
    assert mended == [f"repaired on torchq-local: {counted}", "cluster, queues and RQ agree"]
    torchq(code=0)


def test_doctor_prints_harmless_findings_and_exits_with_0(torchq: Torchq, led: Coordinated) -> None:
    led.client.set("somebody:else", 1)
    told = torchq("--fix", code=0).output
    assert "foreign-keys: harmless; give torchq a Redis database of its own" in told
    assert led.client.exists("somebody:else")


def test_doctor_fix_without_a_leader_fails_with_the_reason(torchq: Torchq, namespace: str) -> None:
    result = torchq("--fix", code=1)
    assert "nothing can be repaired, since no coordinator has ever led here: start a coordinator" in result.stderr
    assert "store-lost" in result.stdout


def test_doctor_fix_names_a_dead_leader_after_one_lease(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": LEASE}}
    spec = {"holderIdentity": "dead", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}
    embedded_cluster.create(LEASES, {**body, "spec": spec}, namespace)
    result = torchq("--fix", code=1)
    assert "dead holds the Lease and has not renewed it since 2026-01-01" in result.stderr


def test_doctor_names_an_unreachable_server(torchq: Torchq) -> None:
    with ports.reserve() as port:
        away = f"127.0.0.1:{port}"
        result = torchq(code=2, TORCHQ_REDIS_URL=f"redis://:s3cret@{away}/0")
    assert f"Redis at redis://{away}/0 does not answer" in result.stderr
    assert "s3cret" not in result.output
    assert "/nowhere/kubeconfig" in torchq(code=2, TORCHQ_KUBECONFIG="/nowhere/kubeconfig").stderr
    assert "must begin with redis://" in torchq(code=2, TORCHQ_REDIS_URL="http://x").stderr
    assert election.LEASE not in result.stdout


def test_doctor_shows_the_objects_that_the_leader_skips(coordinated: Coordinated) -> None:
    desk = coordinated.led()
    desk.watches.errors.record("TorchJob team/odd", ValueError("of a kind that was not foreseen"))
    until(lambda: coordinated.codes() == ["skipped-object"])
    (shown,) = state_checks.compare(coordinated.looker.collect())
    assert (shown.subject, shown.is_harmless) == ("coordinator", False)
    assert shown.message == "skips TorchJob team/odd (ValueError: of a kind that was not foreseen)"
    desk.watches.errors.clear("TorchJob team/odd")
    until(lambda: coordinated.codes() == [])


def test_doctor_reports_an_unreadable_queue(coordinated: Coordinated) -> None:
    coordinated.led()
    broken = {"name": "a"}, {"weight": "much"}
    listed = coordinated.cluster.pages

    class Broken:
        """A cluster whose CustomResourceDefinition accepted a queue with an invalid spec."""

        def __getattr__(self, name: str) -> Any:
            return getattr(coordinated.cluster, name)

        def pages(self, resource: Any, *about: Any, **more: Any) -> Any:
            for page in listed(resource, *about, **more):
                for item in page.items if resource is TENANT_QUEUES else ():
                    item["metadata"].update(broken[0])
                    item["spec"] = broken[1]
                yield page

    looker = Collector(Broken(), coordinated.store, coordinated.work, coordinated.namespace)
    found = {each.code: each for each in state_checks.compare(looker.collect())}
    assert found["unreadable-object"].subject == "TenantQueue a"
    assert "spec.weight" in found["unreadable-object"].message
