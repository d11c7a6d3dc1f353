"""The life of a job on a real API server, and the changes that may occur between two steps."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from crds.api_resources import PODS, SERVICES, TORCHJOBS
from crds.keys import JobKey
from kube.errors import NotFound
from queues.tasks import Task
from reconcilers import errors
from reconcilers.observe import Observer
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers import builders
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task, template
from tests.support.waiting import patient

ALL = ["digits-master-0", "digits-worker-0", "digits-worker-1"]


def test_job_succeeds_with_four_status_writes(bench: Bench) -> None:
    bench.submit()
    assert bench.reconcile() is None
    assert bench.job.status.phase == "Queued"
    assert bench.names() == []

    bench.pick()
    assert bench.reconcile() is None
    assert bench.job.status.phase == "Admitted"
    assert bench.job.admission is not None
    assert (bench.job.admission.attempt, bench.job.admission.charge) == (1, {"jobs": 1, "pods": 3, "cpu": 3000})
    assert (bench.names(), bench.services()) == (ALL, ["digits-master-0"])

    bench.move("Running", "digits-master-0", "digits-worker-0")
    bench.reconcile()
    assert bench.job.status.phase == "Admitted"
    bench.move("Running", "digits-worker-1")
    bench.reconcile()
    assert bench.job.status.phase == "Running"

    bench.move("Succeeded", "digits-master-0", exit_code=0)
    bench.reconcile(times=2)
    assert bench.job.status.phase == "Running"
    bench.move("Succeeded", exit_code=0)
    bench.reconcile(times=2)
    status = bench.job.status
    assert (status.phase, status.completion_time is not None) == ("Succeeded", True)
    assert [each.succeeded for each in status.task_statuses.values()] == [1, 2]
    assert (bench.names(), bench.services()) == (ALL, [])

    calls = bench.counting.calls
    assert calls["patch TorchJob"] == 4, "Queued, Admitted, Running, Succeeded"
    assert calls["create Pod"] == 3
    assert calls["list Pod"] == calls["list TorchJob"] == 0


def test_reconcile_without_changes_only_reads_the_job(bench: Bench) -> None:
    bench.submit()
    bench.pick()
    bench.reconcile()
    bench.move("Running")
    bench.reconcile()
    bench.counting.calls.clear()
    bench.reconcile(times=3)
    assert bench.counting.calls == {"get TorchJob": 3}


def test_loopback_job_is_created_without_service(loopback: Bench) -> None:
    loopback.submit()
    loopback.pick()
    loopback.reconcile()
    assert (loopback.names(), loopback.services()) == (ALL, [])
    master = loopback.cluster.get(PODS, "digits-master-0", loopback.namespace)
    assert master["spec"]["containers"][0]["ports"][0]["hostPort"] == 20_001
    assert loopback.counting.calls == {"get TorchJob": 1, "patch TorchJob": 1, "create Pod": 3}


class TestTheFence:
    def test_worker_that_lost_the_key_creates_no_pods(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        assert bench.reconcile(holds=lambda: False) is None
        assert (bench.names(), bench.services()) == ([], [])

    def test_worker_that_loses_the_key_meanwhile_creates_no_more_pods(self, bench: Bench) -> None:
        bench.submit({"Master": task(), "Worker": task(20, dependsOn=[])})
        bench.pick()
        answers = iter([True, True])  # the service and the first pods are created; then the lease expires
        assert bench.reconcile(holds=lambda: next(answers, False)) is None
        assert 0 < len(bench.names()) <= ReconcileSettings().parallel_writes  # fewer pods on a slow machine
        while bench.reconcile() == 0.0:
            pass  # the time budget was spent: reconcile again
        assert len(bench.names()) == 21

    def test_job_that_changed_meanwhile_is_requeued(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        bench.counting.before["patch TorchJob"] = lambda: bench.change(suspend=True)
        assert bench.reconcile() == 0.0
        assert bench.names() == []
        bench.reconcile()
        assert bench.job.status.phase == "Suspended"

    def test_job_that_was_deleted_meanwhile_is_requeued(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        bench.counting.before["patch TorchJob"] = lambda: bench.cluster.delete(TORCHJOBS, "digits", bench.namespace)
        assert bench.reconcile() == 0.0
        assert bench.reconcile() is None
        assert bench.names() == []

    def test_two_workers_on_one_key_create_every_pod_once(self, bench: Bench) -> None:
        bench.submit({"Master": task(), "Worker": task(20, dependsOn=[])})
        bench.pick()
        bench.reconcile(holds=lambda: False)
        barrier = threading.Barrier(2)

        def race() -> float | None:
            work = Task(key=bench.key, token="t", tenant="x", seen=0, failures=0, reservation=bench.reservation)
            barrier.wait(patient())
            return bench.reconciler(work, lambda: True)

        with ThreadPoolExecutor(2) as pool:
            done = [pool.submit(race), pool.submit(race)]
        assert 0.0 not in {each.result() for each in done}
        assert len(bench.names()) == 21


class TestNamesThatAreTaken:
    def pod(self, bench: Bench, *, owned: bool = False, **labels: str) -> None:
        marks = {f"train.distributed.io/{name.replace('_', '-')}": value for name, value in labels.items()}
        metadata: dict[str, Any] = {"name": "digits-worker-0", "labels": marks}
        if owned:
            owner = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "name": "digits"}
            metadata["ownerReferences"] = [owner | {"uid": labels["job_uid"], "controller": True}]
            metadata["finalizers"] = ["example.org/keep"]  # the garbage collector cannot remove the pod
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template()}
        bench.cluster.create(PODS, body, bench.namespace)

    def test_pod_of_earlier_job_with_the_name_is_awaited(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        self.pod(bench, owned=True, job_uid="earlier", attempt="1", restart="0")
        assert bench.reconcile() == 0.2
        bench.cluster.patch(PODS, "digits-worker-0", {"metadata": {"finalizers": None}}, bench.namespace)
        bench.remove("digits-worker-0")
        assert bench.reconcile() not in (0.0, 0.2)
        assert bench.names() == ALL

    @pytest.mark.parametrize("forged", [False, True])
    def test_foreign_pod_with_the_name_raises_name_taken(self, bench: Bench, forged: bool) -> None:
        bench.submit()
        labelled = {"job_uid": bench.key.uid, "attempt": "1", "restart": "0"} if forged else {}
        bench.pick()
        self.pod(bench, **labelled)
        with pytest.raises(errors.NameTaken, match=r"needs a pod named digits-worker-0.*delete that pod"):
            bench.reconcile()
        said = next(each for each in bench.job.status.conditions if each.type == "Admitted")
        assert (said.reason, "needs a pod named digits-worker-0" in said.message) == ("NameTaken", True)

    @pytest.mark.parametrize("label", ["job-uid", "job-name"])
    def test_pod_of_the_job_whose_labels_were_changed_is_made_again(self, bench: Bench, label: str) -> None:
        bench.submit()
        bench.pick()
        bench.reconcile()
        before = bench.cluster.get(PODS, "digits-worker-0", bench.namespace)["metadata"]["uid"]
        value = None if label == "job-uid" else "other"
        changed = {"metadata": {"labels": {f"train.distributed.io/{label}": value}}}
        bench.cluster.patch(PODS, "digits-worker-0", changed, bench.namespace)
        while bench.reconcile() == 0.2:
            pass
        after = bench.cluster.get(PODS, "digits-worker-0", bench.namespace)["metadata"]
        assert (after["uid"] != before, after["labels"]["train.distributed.io/job-uid"]) == (True, bench.key.uid)

    def service(self, bench: Bench, uid: str, *, owned: bool) -> None:
        metadata = builders.left_over("digits-master-0", uid, owned=owned)
        body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
        spec = {"clusterIP": "None", "ports": [{"port": 1}]}
        bench.cluster.create(SERVICES, {**body, "spec": spec}, bench.namespace)

    def test_service_of_earlier_job_is_deleted(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        self.service(bench, "earlier", owned=True)
        assert bench.reconcile() == 0.2
        bench.cluster.patch(SERVICES, "digits-master-0", {"metadata": {"finalizers": None}}, bench.namespace)
        assert bench.reconcile() is None
        (service,) = bench.cluster.list(SERVICES, bench.namespace, label_selector="train.distributed.io/job-uid").items
        assert service["metadata"]["labels"]["train.distributed.io/job-uid"] == bench.key.uid

    @pytest.mark.parametrize("uid", ["earlier", ""])
    def test_service_with_only_the_label_raises_name_taken(self, bench: Bench, uid: str) -> None:
        bench.submit()
        bench.pick()
        self.service(bench, uid or bench.key.uid, owned=False)
        with pytest.raises(errors.NameTaken, match="service named digits-master-0"):
            bench.reconcile()
        assert "deletionTimestamp" not in bench.cluster.get(SERVICES, "digits-master-0", bench.namespace)["metadata"]


class TestRefusals:
    def test_template_refused_by_server_fails_job(self, bench: Bench) -> None:
        bench.submit(
            {
                "Master": task(),
                "Worker": {"template": template(imagePullPolicy="Sometimes", nonsense=1), "dependsOn": []},
            }
        )
        bench.pick()
        bench.reconcile()
        reason, message = bench.true_condition("Failed")
        assert reason == "InvalidTemplate"
        assert "pod digits-worker-0: " in message
        assert "nonsense" in message or "imagePullPolicy" in message
        bench.reconcile()
        assert bench.names() == []

    def test_dependency_cycle_fails_job(self, bench: Bench) -> None:
        circle = {
            "Master": task(dependsOn=[{"taskType": "Worker"}]),
            "Worker": task(dependsOn=[{"taskType": "Master"}]),
        }
        with pytest.raises(ValueError, match="cycle"):
            bench.submit(circle)
        assert bench.reconcile(times=2) is None
        status = bench.raw()["status"]
        assert status["phase"] == "Failed"
        (condition,) = status["conditions"]
        assert condition["reason"] == "InvalidSpec"
        assert condition["message"] == "spec.torchTaskSpecs: dependency cycle Master -> Worker -> Master"
        assert bench.counting.calls["patch TorchJob"] == 1


class TestBudget:
    def test_large_job_stops_at_its_write_budget(self, bench: Bench) -> None:
        bench.submit({"Master": task(), "Worker": task(99, dependsOn=[])})
        bench.pick()
        settings = ReconcileSettings(admission_timeout=0.0, most_seconds=60.0, most_writes=64)
        with Reconciler(bench.counting, bench.pods, settings) as modest:
            bench.reconciler = modest
            assert bench.reconcile() == 0.0
            assert len(bench.names()) == 64 - 2  # the status and the service are two writes
            assert bench.reconcile() != 0.0
        assert len(bench.names()) == 100
        assert bench.counting.calls["create Pod"] == 100

    def test_slow_server_stops_reconcile_at_its_time_budget(self, bench: Bench) -> None:
        bench.submit({"Master": task(), "Worker": task(19, dependsOn=[])})
        bench.pick()
        seconds = itertools.count(0, 2)  # every reading of the clock is two seconds later
        with Reconciler(
            bench.counting, bench.pods, ReconcileSettings(admission_timeout=0.0), lambda: float(next(seconds))
        ) as slow:
            bench.reconciler = slow
            made, after = [], 0.0
            while after == 0.0:
                after = bench.reconcile()
                made.append(len(bench.names()))
        assert made == [8, 16, 20]
        assert after is None or after > 1.0, "only the pods are read again"


class TestEnds:
    def test_pods_of_deleted_job_are_deleted(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        bench.reconcile()
        gone = bench.key
        bench.catch_up()
        bench.key = JobKey(bench.namespace, "another", gone.uid)  # this is as if no garbage collector ran
        assert bench.reconcile() is None
        assert (bench.names(), bench.services()) == ([], [])

    def test_job_with_same_name_and_other_uid_is_not_changed(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        bench.reconcile()
        current, bench.key = bench.key, replace(bench.key, uid="0c5e8f0a-0000-0000-0000-000000000000")
        assert bench.reconcile() is None
        assert bench.names() == ALL
        bench.key = current
        assert bench.job.status.phase == "Admitted"

    def test_suspended_job_runs_again_after_resume(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        bench.reconcile()
        bench.move("Running")
        bench.reconcile()
        bench.change(suspend=True)
        bench.reconcile(times=2)
        assert bench.names() == []
        assert (bench.job.status.phase, bench.job.admission, bench.job.status.attempt) == ("Suspended", None, 1)
        bench.change(suspend=False)
        bench.reservation = None
        bench.reconcile()
        assert bench.job.status.phase == "Queued"
        bench.pick(attempt=2)
        bench.reconcile()
        assert bench.names() == ALL
        made = bench.cluster.get(PODS, "digits-master-0", bench.namespace)
        assert made["metadata"]["labels"]["train.distributed.io/attempt"] == "2"

    @pytest.mark.parametrize("scope", ["Job", "Task"])
    def test_failed_pods_are_replaced_by_restart_scope(self, bench: Bench, scope: str) -> None:
        bench.submit(restartScope=scope)
        bench.pick()
        bench.reconcile()
        bench.move("Running")
        bench.reconcile()
        before = {name: bench.cluster.get(PODS, name, bench.namespace)["metadata"]["uid"] for name in ALL}
        bench.move("Failed", "digits-worker-0", "digits-worker-1", exit_code=1)
        bench.reconcile(times=3)
        assert bench.job.status.restart_count == 1
        after = {name: bench.cluster.get(PODS, name, bench.namespace)["metadata"]["uid"] for name in ALL}
        assert [name for name in ALL if before[name] != after[name]] == (ALL if scope == "Job" else ALL[1:])
        bench.move("Running")
        bench.reconcile()
        assert bench.job.status.phase == "Running"

    def test_permanent_failure_fails_job_and_cleans_up(self, bench: Bench) -> None:
        bench.submit()
        bench.pick()
        bench.reconcile()
        bench.move("Running")
        bench.reconcile()
        bench.move("Failed", "digits-master-0", exit_code=1, reason="Error")
        bench.reconcile(times=2)
        assert bench.true_condition("Failed") == ("PodFailed", "pod digits-master-0 failed with exit code 1 (Error)")
        assert (bench.names(), bench.services()) == (["digits-master-0"], [])

    def test_finished_job_is_deleted_after_its_ttl(self, bench: Bench) -> None:
        bench.submit(ttlSecondsAfterFinished=0)
        bench.pick()
        bench.reconcile()
        bench.move("Succeeded")
        assert bench.reconcile() is None
        assert bench.job.status.phase == "Succeeded"
        bench.reconcile()
        with pytest.raises(NotFound):
            bench.raw()


class Behind:
    """A cache that has received no object yet."""

    synced = True

    def wait_for(self, _resource_version: int, _timeout: float) -> bool:
        return False

    def indexed(self, _key: str) -> list[Any]:
        return []


def test_observer_reads_pods_from_server_when_cache_is_behind(bench: Bench) -> None:
    bench.submit()
    bench.pick()
    bench.reconcile()
    observer = Observer(bench.cluster, Behind(), ReconcileSettings(cache_wait=0.0))
    work = Task(key=bench.key, token="t", tenant="x", seen=5, failures=0, reservation=bench.reservation)
    assert [each.name for each in observer.observe(work).pods] == ALL
