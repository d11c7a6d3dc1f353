"""The requests that a job, a pod, a resync and a takeover cost. The numbers of requests agree with docs/budgets.md."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from coordinator.cache import optional_kinds
from coordinator.cache.dirty_keys import PODS_SECONDS
from coordinator.recorder.database import DatabaseAccess, OpenStore
from coordinator.recorder.pending_rows import PendingRows
from coordinator.recorder.recorder import Recorder
from coordinator.recorder.recorder_lease import RecorderLease
from coordinator.recorder.sights import Sights
from coordinator.worker.recording import RecordingReader
from crds import scale_request
from crds.api_resources import PODS, TORCHJOBS
from gang import backends
from history.store import JobQuery
from kube.api import Cluster
from kube.client import KubernetesCluster
from tests.support.coordinator import desk as desks
from tests.support.coordinator import kinds
from tests.support.coordinator.desk import Clock, task
from tests.support.coordinator.recording import FailingHistory
from tests.support.metered import Client, Metered
from tests.support.waiting import until

JOBS = 8
WATCHED = ("namespaces", "nodes", "pods", "priorityclasses", "resourcequotas", "tenantqueues", "torchjobs")
OF_WORKERS = ("nodes", "pods", "tenantqueues")
REQUESTS = ("scaleins", "scaleouts")
QUESTIONS = len(optional_kinds.KINDS) + len(scale_request.RESOURCES)
"""Each process asks once for each foreign kind and each kind of scale request. Every 15 s, it asks again for the kinds
that are not installed. The coordinator asks for the queues of gang schedulers, too.
"""
STATUS = "PATCH torchjobs/status"
MODEL = {"modelOutput": {"modelName": "digits"}, "outputs": {"claimName": "models"}}


def test_a_start_costs_one_list_and_one_watch_per_resource(cluster: KubernetesCluster, clock: Clock) -> None:
    kinds.uninstall(cluster, *optional_kinds.KINDS)  # earlier tests may have installed these kinds
    with Metered(cluster, clock, pool="nodes", in_place="auto") as line:
        line.begin()
        line.settle()
        until(lambda: sum(line.coordinator.values()) >= 18 + QUESTIONS + len(backends.QUEUES))
        until(lambda: sum(line.worker.values()) >= 10 + QUESTIONS)
        assert line.coordinator == {"DISCOVER": QUESTIONS + len(backends.QUEUES)} | {
            f"{verb} {each}": 1 for each in (*WATCHED, *REQUESTS) for verb in ("LIST", "WATCH")
        }
        assert line.worker == {"DISCOVER": QUESTIONS} | {
            f"{verb} {each}": 1 for each in (*OF_WORKERS, *REQUESTS) for verb in ("LIST", "WATCH")
        }


def test_an_idle_cluster_costs_no_request(line: Metered) -> None:
    line.queue("a")
    line.begin()
    line.settle()
    line.note()
    for _ in range(50):
        line.term.step()
        line.run_worker()
    assert (line.coordinator, line.worker) == ({}, {})


def test_a_watch_that_ends_is_resumed_without_a_list(line: Metered, namespace: str) -> None:
    line.queue("a")
    line.begin()
    line.submit("there", namespace, "a", tasks={"Master": task()})
    line.settle()
    line.note()
    for informer in line.informers:
        informer._reflector._watch.close()
    until(lambda: sum((line.coordinator + line.worker).values()) >= 9)
    line.settle()
    assert line.coordinator == {f"WATCH {each}": 1 for each in WATCHED if each != "nodes"}
    assert line.worker == {f"WATCH {each}": 1 for each in OF_WORKERS}


@pytest.mark.parametrize(("spec", "more"), [({}, {}), (MODEL, {"CREATE modelversions": 1})], ids=["plain", "model"])
def test_a_job_whose_pods_end_at_once_costs_two_status_writes(
    line: Metered, namespace: str, spec: dict[str, Any], more: dict[str, int]
) -> None:
    line.queue("a")
    line.begin()
    line.settle()
    line.note()
    key = line.submit("quick", namespace, "a", tasks={"Master": task()}, **spec)
    line.until(lambda: line.pods_of(key))
    line.move(key, "Succeeded")
    line.until(lambda: line.phase(key) == "Succeeded" and not line.reserved())
    line.settle()
    assert line.coordinator == {}
    # Admitted, Succeeded.
    assert line.worker == {"GET torchjobs": line.reconciles, STATUS: 2, "CREATE pods": 1} | more


def test_a_job_that_waits_and_runs_costs_four_status_writes(line: Metered, namespace: str, clock: Clock) -> None:
    line.queue("a", stopPolicy="Hold")
    line.begin()
    line.settle()
    line.note()
    key = line.submit("slow", namespace, "a")
    line.until(lambda: line.waiting() == {key})
    clock.step(line.settings.queued_after)
    line.until(lambda: line.phase(key) == "Queued")
    line.cluster.patch(desks.TENANT_QUEUES, "a", {"spec": {"stopPolicy": "None"}})
    line.until(lambda: len(line.pods_of(key)) == 2)
    line.move(key, "Running")
    line.until(lambda: line.phase(key) == "Running")
    line.move(key, "Succeeded")
    line.until(lambda: line.phase(key) == "Succeeded" and not line.reserved())
    line.settle()
    assert line.coordinator == {}
    # Queued, Admitted, Running, Succeeded. Pods that share an address need no service. Events have a budget of their
    # own.
    # The worker has read the job when it wrote Queued, and the leader told it the rest when the job was picked.
    assert line.worker == {"GET torchjobs": line.reconciles - 1, STATUS: 4, "CREATE pods": 2}


def test_a_recorder_costs_jobs_one_look_at_its_lease_and_no_write(line: Metered, namespace: str, clock: Clock) -> None:
    line.queue("a")
    line.begin()
    line.settle()
    client, pending, store, turned = Client(line.cluster), PendingRows(), FailingHistory(), Clock()
    sights = Sights(client, pending, clock)
    lease = RecorderLease(client, "a", line.settings.lease_namespace, {})
    recorder = Recorder(sights, pending, DatabaseAccess(lambda: cast(OpenStore, store)), lease, now=clock, clock=turned)
    looks = RecordingReader(cast(Cluster, line.working), line.settings.lease_namespace, float, clock)
    line.reconciler.close()
    line.reconciler = line.new_reconciler(recording=looks)
    sights.start()
    try:
        until(lambda: sights.synced)
        recorder.step()
        begun = client.request_counts
        line.note()
        keys = [
            line.submit(name, namespace, "a", tasks={"Master": task()}, ttlSecondsAfterFinished=60)
            for name in ("brief", "short")
        ]
        line.until(lambda: all(line.pods_of(key) for key in keys))
        for key in keys:
            line.move(key, "Succeeded")
        line.until(lambda: all(line.phase(key) == "Succeeded" for key in keys) and not line.reserved())
        jobs = line.cluster.list(TORCHJOBS, namespace).items
        ended = max(int(job["metadata"]["resourceVersion"]) for job in jobs)
        until(lambda: sights.jobs.told_version >= ended)
        turned.step(10)
        recorder.step()
        clock.step(60)
        line.until(lambda: not line.cluster.list(TORCHJOBS, namespace).items)
        line.settle()
    finally:
        for informer in sights.informers:
            informer.stop()
    assert line.coordinator == {}
    writes = {STATUS: 4, "CREATE pods": 2, "DELETE torchjobs": 2}
    # The second admission needs no read.
    assert line.worker == {"GET torchjobs": line.reconciles - 1, "GET leases": 1} | writes
    assert client.request_counts - begun == {"PATCH leases": 1}
    found = store.kept.jobs(JobQuery(namespaces=frozenset({namespace})))
    assert [record.job.outcome for record in found] == ["Succeeded"] * 2


def test_the_cost_of_many_jobs_is_proportional_and_needs_no_list(line: Metered, namespace: str) -> None:
    line.queue("a")
    line.begin()
    line.settle()
    line.note()
    keys = [line.submit(f"many-{number}", namespace, "a", tasks={"Master": task()}) for number in range(JOBS)]
    line.until(lambda: all(line.phase(key) == "Admitted" and line.pods_of(key) for key in keys))
    for key in keys:
        line.move(key, "Succeeded")
    line.until(lambda: not line.reserved() and all(line.phase(key) == "Succeeded" for key in keys))
    line.settle()
    assert line.coordinator == {}
    # One reconcile after the pick, one after the end of the pod. Admission and creation of the pod cause none.
    assert line.reconciles == 2 * JOBS
    # Only the first admission of these equal jobs reads one.
    assert line.worker == {"GET torchjobs": JOBS + 1, STATUS: 2 * JOBS, "CREATE pods": JOBS}


def test_a_job_without_pods_costs_one_reconcile_and_one_write(
    cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Metered(cluster, clock, pods="none") as line:
        line.queue("a")
        line.begin()
        line.settle()
        line.note()
        keys = [line.submit(f"bare-{number}", namespace, "a") for number in range(JOBS)]
        line.until(lambda: all(line.phase(key) == "Admitted" for key in keys))
        line.settle()
        assert line.worker == {"GET torchjobs": 1, STATUS: JOBS}
        for key in keys:
            line.cluster.patch(TORCHJOBS, key.name, {"status": {"phase": "Succeeded"}}, namespace, subresource="status")
        line.until(lambda: not line.reserved())
        line.settle()
        assert line.worker == {"GET torchjobs": 1, STATUS: JOBS}
        assert line.coordinator == {}


def test_a_thousand_pod_events_of_one_job_cause_a_few_reconciles(line: Metered, namespace: str) -> None:
    line.queue("a")
    line.begin()
    key = line.submit("noisy", namespace, "a", tasks={"Master": task(), "Worker": task(9) | {"dependsOn": []}})
    line.until(lambda: len(line.pods_of(key)) == 10)
    line.settle()
    line.note()
    names = line.pods_of(key)
    pods = line.watches.pods.resource_version

    def change(number: int) -> None:
        patch = {"metadata": {"annotations": {"noise": str(number)}}}
        line.cluster.patch(PODS, names[number % len(names)], patch, namespace)

    with ThreadPoolExecutor(8) as threads:
        noise = [threads.submit(change, number) for number in range(1_000)]
        while not all(each.done() for each in noise):
            line.term.step()  # the clock stands still, so no rest ends during this step
            line.run_worker()
        assert [each.result() for each in noise] == [None] * 1_000
    newest = max(int(line.cluster.get(PODS, each, namespace)["metadata"]["resourceVersion"]) for each in names)
    assert newest >= pods + 1_000
    until(lambda: line.watches.pods.resource_version >= newest)
    assert line.reconciles <= 1
    line.settling.step(PODS_SECONDS)
    line.settle()
    assert line.reconciles <= 3
    assert line.worker == {"GET torchjobs": line.reconciles}


def test_a_resync_costs_one_get_for_each_unfinished_job(line: Metered, namespace: str) -> None:
    line.queue("a")
    line.begin()
    keys = [line.submit(f"synced-{number}", namespace, "a", tasks={"Master": task()}) for number in range(JOBS)]
    line.until(lambda: all(line.pods_of(key) for key in keys))
    for key in keys[:3]:
        line.move(key, "Succeeded")
    line.until(lambda: len(line.reserved()) == JOBS - 3)
    line.settle()
    line.note()
    assert line.term.audit()
    line.term.resync()
    line.settle()
    assert line.coordinator == {}
    assert line.worker == {"GET torchjobs": JOBS - 3}
    assert line.reconciles == JOBS - 3


def test_a_resync_costs_no_request_for_waiting_jobs(line: Metered, namespace: str, clock: Clock) -> None:
    line.queue("a", stopPolicy="Hold")
    line.begin()
    keys = {line.submit(f"waits-{number}", namespace, "a") for number in range(JOBS)}
    line.until(lambda: line.waiting() == keys)
    clock.step(line.settings.queued_after)
    line.until(lambda: all(line.phase(key) == "Queued" for key in keys))
    line.settle()
    line.note()
    line.term.resync()
    line.settle()
    assert (line.coordinator, line.worker) == ({}, {})


@pytest.mark.parametrize("lost", [False, True], ids=["redis kept", "redis lost"])
def test_a_takeover_costs_one_get_for_each_unfinished_job(line: Metered, namespace: str, lost: bool) -> None:
    line.queue("a")
    line.begin()
    keys = [line.submit(f"taken-{number}", namespace, "a", tasks={"Master": task()}) for number in range(JOBS)]
    line.until(lambda: all(line.pods_of(key) for key in keys))
    line.settle()
    line.note()
    if lost:
        line.lose()
    line.begin(epoch=2)
    line.settle()
    assert line.coordinator == {}  # the caches are warm, since a candidate watches, too
    assert line.worker == {"GET torchjobs": JOBS}
