"""A growth and a removal on a real API server: the writes, and the pods that survive."""

from dataclasses import replace
from typing import Any

import pytest

from crds import labels
from crds.api_resources import EVENTS, PODS, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.status import TorchJobStatus
from reconcilers.observe import Caches
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task
from tests.support.reconcilers.sizes import charge

PLACE = (labels.RANK, labels.WORLD_SIZE)
POLICY: dict[str, Any] = {"numMinReplicas": 1, "numMaxReplicas": 6, "mode": "InPlaceRestart"}


def reserve(bench: Bench, size: int, grown: int, idle: int = 0) -> None:
    """Let the store hold room for `size` workers, of which `idle` are not paid for."""
    assert bench.reservation is not None
    bench.reservation = replace(bench.reservation, charge=charge(size), size=size, grown=grown, idle=idle)


def aim(bench: Bench, workers: int, reason: str) -> None:
    """Write the size that the coordinator has decided on."""
    target = {"workers": workers, "reason": reason, "message": "for other/next", "since": "2026-01-02T03:04:05Z"}
    patch = {"status": {"target": {**target, "wish": 2}}}
    bench.cluster.patch(TORCHJOBS, "digits", patch, bench.namespace, subresource="status")


def uids(bench: Bench) -> dict[str, str]:
    return {pod.name: pod.uid for pod in bench.pods.values() if pod.namespace == bench.namespace}


def places(bench: Bench) -> dict[str, tuple[str, str, str]]:
    """Return rank, size of the world and generation of each pod."""
    found = {pod["metadata"]["name"]: pod["metadata"] for pod in bench.cluster.list(PODS, bench.namespace).items}
    return {
        name: (*(metadata["annotations"].get(each, "") for each in PLACE), metadata["labels"][labels.RESTART])
        for name, metadata in found.items()
        if name.startswith("digits")
    }


@pytest.fixture
def resized(local: Bench) -> Bench:
    """A job whose two workers run, where the node can restart containers in place."""
    local.submit({"Worker": task(2)}, torchElasticPolicy=POLICY)
    local.pick()
    local.reconcile()
    local.move("Running")
    local.reconcile()
    return local


def grow(bench: Bench) -> None:
    """Let the job grow to four workers."""
    bench.change(torchTaskSpecs={"Worker": {"numTasks": 4}})
    bench.reconcile(times=2)
    reserve(bench, 4, grown=1)
    bench.reconcile(times=3)
    bench.reach_gate("digits-worker-2")
    bench.reconcile(times=2)
    assert bench.job.status.restart_generation == 0, "the job waits for the last worker"
    bench.reach_gate("digits-worker-3")
    bench.reconcile(times=2)
    assert {place[:2] for place in places(bench).values()} == {(str(rank), "4") for rank in range(4)}
    bench.restarted("digits-worker-0", "digits-worker-1")
    bench.reconcile(times=3)
    bench.move("Running")
    bench.reconcile(times=2)


def check_unchanged(before: TorchJobStatus, after: TorchJobStatus) -> None:
    kept = ("phase", "start_time", "restart_count", "disruptions", "attempt")
    assert {name: getattr(after, name) for name in kept} == {name: getattr(before, name) for name in kept}


def test_growth_restarts_all_pods_once_with_few_writes(resized: Bench) -> None:
    before, first = resized.job.status, uids(resized)
    assert places(resized) == {"digits-worker-0": ("0", "2", "0"), "digits-worker-1": ("1", "2", "0")}
    resized.counting.calls.clear()
    grow(resized)
    assert {place[2] for place in places(resized).values()} == {"1"}
    assert resized.counting.calls["patch TorchJob"] == 4, (
        "one write each for the request, the grant, the new world and the end"
    )
    after = resized.job.status
    assert after.admission is not None
    assert (after.admission.workers, after.admission.grown, after.scaling) == (4, 1, None)
    assert first.items() <= uids(resized).items()
    check_unchanged(before, after)


def test_removal_closes_the_gap_in_the_ranks(resized: Bench) -> None:
    grow(resized)
    before, first = resized.job.status, uids(resized)
    resized.move("Failed", "digits-worker-1", exit_code=137, reason="OOMKilled")
    resized.counting.calls.clear()
    resized.change(torchTaskSpecs={"Worker": {"numTasks": 3}})
    resized.reconcile(times=2)
    resized.remove("digits-worker-1")
    resized.restarted("digits-worker-0", "digits-worker-2", "digits-worker-3")
    resized.reconcile(times=3)
    assert resized.counting.calls["patch TorchJob"] == 3, (
        "one write each for the victim and new world, the smaller grant and the end"
    )
    ranks = {0: "0", 2: "1", 3: "2"}
    assert places(resized) == {f"digits-worker-{index}": (rank, "3", "2") for index, rank in ranks.items()}
    after = resized.job.status
    assert after.admission is not None
    assert (after.admission.workers, after.admission.indexes, after.scaling) == (3, "0,2-3", None)
    assert after.admission.charge == charge(3)
    assert after.task_statuses["Worker"].ready == 3
    assert uids(resized).items() <= first.items()
    check_unchanged(before, after)
    told = [each for each in resized.cluster.list(EVENTS, resized.namespace).items if each["reason"] == "Scaled"]
    changes = sorted(each["message"].partition(" in ")[0] for each in told)
    assert changes == ["from 2 to 4 workers", "from 4 to 3 workers"]


def test_idle_growth_comes_and_goes_with_few_writes(resized: Bench) -> None:
    before = resized.job.status
    aim(resized, 3, "Idle")
    resized.counting.calls.clear()
    reserve(resized, 3, grown=1, idle=1)
    resized.reconcile(times=3)
    resized.reach_gate("digits-worker-2")
    resized.reconcile(times=2)
    resized.restarted("digits-worker-0", "digits-worker-1")
    resized.reconcile(times=3)
    resized.move("Running")
    resized.reconcile(times=2)
    grown = resized.job.status
    assert grown.admission is not None
    assert (grown.admission.workers, grown.admission.idle, grown.scaling) == (3, 1, None)
    assert resized.counting.calls["patch TorchJob"] == 3, "one write each for the grant, the new world and the end"
    aim(resized, 2, "GiveBack")
    resized.counting.calls.clear()
    resized.reconcile(times=2)
    resized.remove("digits-worker-2")
    resized.restarted("digits-worker-0", "digits-worker-1")
    resized.reconcile(times=3)
    after = resized.job.status
    assert after.admission is not None
    assert (after.admission.workers, after.admission.idle, after.scaling, after.target) == (2, 0, None, None)
    assert after.resized is not None
    assert resized.counting.calls["patch TorchJob"] == 2, (
        "one write each for the victim and new world, and the smaller grant"
    )
    check_unchanged(before, after)
    told = {each["reason"] for each in resized.cluster.list(EVENTS, resized.namespace).items}
    assert {"Grown", "GaveBack"} <= told


def test_removal_goes_on_where_the_worker_may_not_ask_to_save(resized: Bench) -> None:
    """The gatekeeper refuses every request that the role of workers does not permit."""
    resized.change(torchTaskSpecs={"Worker": {"numTasks": 1}}, schedulingPolicy={"checkpointSeconds": 600})
    resized.reconcile(times=2)
    scaling = resized.job.status.scaling
    assert scaling is not None
    assert (scaling.victims, labels.CHECKPOINT_REQUESTED in resized.job.metadata.annotations) == ((), False)
    answer = {labels.CHECKPOINT_COMPLETED: str(int(scaling.since.timestamp()))}
    resized.cluster.patch(TORCHJOBS, "digits", {"metadata": {"annotations": answer}}, resized.namespace)
    resized.reconcile()
    scaling = resized.job.status.scaling
    assert scaling is not None
    assert (scaling.victims, resized.counting.calls["patch TorchJob"] > 0) == (("digits-worker-1",), True)


def test_a_report_answers_the_request_to_save_and_is_read_only_meanwhile(resized: Bench) -> None:
    asked: list[JobKey] = []
    saved = {resized.key: 0}

    def read(key: JobKey) -> int:
        asked.append(key)
        return saved[key]

    settings = ReconcileSettings(in_place="local", admission_timeout=0.0, most_seconds=60.0)
    with Reconciler(resized.counting, resized.pods, settings, caches=Caches(reported_saves=read)) as reconciler:
        resized.reconciler = reconciler
        resized.reconcile()
        assert asked == [], "no pod is asked to save"
        resized.change(torchTaskSpecs={"Worker": {"numTasks": 1}}, schedulingPolicy={"checkpointSeconds": 600})
        resized.reconcile(times=2)
        scaling = resized.job.status.scaling
        assert scaling is not None
        for number, victims in ((-1, ()), (0, ("digits-worker-1",))):
            saved[resized.key] = int(scaling.since.timestamp()) + number
            resized.reconcile()
            now = resized.job.status.scaling
            assert now is not None
            assert now.victims == victims
        asked.clear()
        resized.reconcile()
        assert asked == [], "the removal has begun"
