"""The PodGroup of a job that grows and shrinks, on a real API server; the tests act as Volcano's scheduler."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kube.api import Manifest
from tests.reconcilers.conftest import benches
from tests.reconcilers.test_reconcile_gangs import group, let_in
from tests.support.coordinator import kinds
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task
from tests.support.reconcilers.sizes import charge

BOUNDS = {"numMinReplicas": 2, "numMaxReplicas": 6}


@pytest.fixture
def gang(cluster: Any, namespace: str) -> Iterator[Bench]:
    kinds.install_gangs(cluster)
    yield from benches(cluster, namespace, gang_scheduler="volcano", in_place="local")


def size(bench: Bench) -> tuple[int, int, Any]:
    """Return the sizes of the PodGroup: its minimum, the minimum of the workers, and the CPUs of the minimum."""
    spec: Manifest = group(bench)["spec"]
    return spec["minMember"], spec["minTaskMember"]["worker"], spec["minResources"]["cpu"]


def hold(bench: Bench, workers: int, grown: int) -> None:
    """Let the store hold room for `workers` workers."""
    assert bench.reservation is not None
    bench.reservation = replace(bench.reservation, charge=charge(workers), size=workers, grown=grown)


def run(bench: Bench, workers: int, policy: dict[str, Any] | None, **spec: Any) -> None:
    """Run a job with `workers` workers."""
    elastic = {} if policy is None else {"torchElasticPolicy": policy | {"mode": "InPlaceRestart"}}
    bench.submit({"Worker": task(spec.pop("wish", workers))}, **elastic, **spec)
    bench.pick()
    hold(bench, workers, 0)
    bench.reconcile(times=2)
    let_in(bench)
    bench.reconcile()
    bench.move("Running")
    bench.reconcile(times=2)


def grow(bench: Bench, workers: int) -> None:
    hold(bench, workers, 1)
    bench.reconcile(times=3)
    assert len(bench.names()) == workers


def join(bench: Bench) -> None:
    """Let the third and the fourth worker of a static world run, and the first two workers run again."""
    bench.reach_gate("digits-worker-2", "digits-worker-3")
    bench.reconcile(times=2)
    bench.restarted("digits-worker-0", "digits-worker-1")
    bench.reconcile(times=3)
    bench.move("Running")
    bench.reconcile(times=2)


@pytest.mark.parametrize(
    ("policy", "spec"), [(BOUNDS, {}), (None, {"minMembers": {"Worker": 2}, "wish": 4})], ids=["policy", "minMembers"]
)
def test_minimum_of_the_group_is_the_least_number_of_workers_for_life(
    gang: Bench, policy: dict[str, Any] | None, spec: dict[str, Any]
) -> None:
    run(gang, 2, policy, **spec)
    before = group(gang)["metadata"]["uid"]
    assert size(gang) == (2, 2, "2")
    if policy is not None:
        gang.change(torchTaskSpecs={"Worker": {"numTasks": 4}})
        gang.reconcile(times=2)
    grow(gang, 4)
    if policy is not None:
        join(gang)
    gang.move("Running")
    gang.reconcile(times=2)
    assert gang.job.admission is not None
    assert (gang.job.admission.workers, gang.job.status.scaling) == (4, None)
    if policy is not None:
        gang.change(torchTaskSpecs={"Worker": {"numTasks": 2}})
        gang.reconcile(times=3)
        gang.remove("digits-worker-2", "digits-worker-3")
        gang.restarted("digits-worker-0", "digits-worker-1")
        gang.reconcile(times=2)
        assert gang.names() == ["digits-worker-0", "digits-worker-1"]
    assert (size(gang), group(gang)["metadata"]["uid"]) == ((2, 2, "2"), before)
    assert gang.counting.calls["patch PodGroup"] == 0


def test_minimum_of_a_job_without_one_follows_the_workers_that_run(gang: Bench) -> None:
    run(gang, 2, {"numMaxReplicas": 6})
    assert size(gang) == (2, 2, "2")
    gang.change(torchTaskSpecs={"Worker": {"numTasks": 4}})
    gang.reconcile(times=2)
    grow(gang, 4)
    gang.reach_gate("digits-worker-2")
    gang.reconcile(times=2)
    assert size(gang) == (2, 2, "2"), "one of the added workers is not there yet"
    join(gang)
    assert size(gang) == (4, 4, "4")

    gang.change(torchTaskSpecs={"Worker": {"numTasks": 3}})
    seen = []
    gang.counting.before["delete Pod"] = lambda: seen.append(size(gang))
    gang.reconcile(times=3)
    assert seen == [(3, 3, "3")], "the minimum is lowered before the victim is deleted"
    assert gang.counting.calls["patch PodGroup"] == 2
