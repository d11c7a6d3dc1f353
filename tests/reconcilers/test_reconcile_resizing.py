"""A growth and a removal on a real API server: what is written, and what survives."""

from dataclasses import replace
from typing import Any

from crds.api_resources import EVENTS
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task
from tests.support.reconcilers.sizes import charge

POLICY: dict[str, Any] = {"numMinReplicas": 1, "numMaxReplicas": 6, "mode": "InPlaceRestart"}


def reserve(bench: Bench, size: int, grown: int) -> None:
    """Let the store hold room for some workers."""
    assert bench.reservation is not None
    bench.reservation = replace(bench.reservation, charge=charge(size), size=size, grown=grown)


def uids(bench: Bench) -> dict[str, str]:
    return {pod.name: pod.uid for pod in bench.pods.values() if pod.namespace == bench.namespace}


def test_job_grows_and_shrinks_with_few_writes_and_keeps_its_other_pods(bench: Bench) -> None:
    bench.submit({"Worker": task(2)}, torchElasticPolicy=POLICY)
    bench.pick()
    bench.reconcile()
    bench.move("Running")
    bench.reconcile()
    before, first = bench.job.status, uids(bench)
    bench.counting.calls.clear()

    bench.change(torchTaskSpecs={"Worker": {"numTasks": 4}})
    bench.reconcile(times=2)
    reserve(bench, 4, grown=1)
    bench.reconcile(times=3)
    assert bench.names() == [f"digits-worker-{index}" for index in range(4)]
    bench.move("Running")
    bench.reconcile(times=2)
    assert bench.counting.calls["patch TorchJob"] == 3, "the request, the grant, the end"
    grown = bench.job.status
    assert grown.admission is not None
    assert (grown.admission.workers, grown.admission.grown, grown.scaling) == (4, 1, None)

    bench.move("Failed", "digits-worker-1", exit_code=137, reason="OOMKilled")
    bench.counting.calls.clear()
    bench.change(torchTaskSpecs={"Worker": {"numTasks": 3}})
    bench.reconcile(times=2)
    bench.remove("digits-worker-1")
    bench.reconcile(times=2)
    assert bench.counting.calls["patch TorchJob"] == 2, "the victim, the smaller grant"
    after = bench.job.status
    assert after.admission is not None
    assert (after.admission.workers, after.admission.indexes, after.scaling) == (3, "0,2-3", None)
    assert after.admission.charge == charge(3)
    assert uids(bench)["digits-worker-0"] == first["digits-worker-0"]
    kept = ("phase", "start_time", "restart_count", "disruptions", "restart_generation", "attempt")
    assert {name: getattr(after, name) for name in kept} == {name: getattr(before, name) for name in kept}
    said = [each["message"] for each in bench.cluster.list(EVENTS, bench.namespace).items if each["reason"] == "Scaled"]
    assert [message.partition(" in ")[0] for message in sorted(said)] == ["from 2 to 4 workers", "from 4 to 3 workers"]
