"""The numbers of workers with which a job can be admitted, and the charge of each number."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.resources.amounts import add, scale, subtract
from crds.torchjob import demand, torchjob
from crds.torchjob.torchjob import TorchJob
from crds.torchjob.worker_range import WorkerRange
from tests.support.crds.builders import GPU, job, task, template

MEASURED = {"Worker": {"cpu": 900, "pods": 1}}


def described(workers: int, **spec: Any) -> TorchJob:
    """Return a job of a Master and workers with a GPU. Two further tasks belong to an earlier stage and to a later
    stage.
    """
    tasks = {
        "Prepare": task(template=template(cpu="3", memory=7), numTasks=2),
        "Master": task(template=template(cpu="1"), dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}]),
        "Worker": task(template=template(cpu="500m", **{GPU: 1}), numTasks=workers),
        "Export": task(template=template(cpu="2500m"), dependsOn=[{"taskType": "Worker", "phase": "Succeeded"}]),
    }
    return torchjob.parse(job(torchTaskSpecs=tasks, **spec))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, None),
        ({"minMembers": {"Worker": 6}}, None),
        ({"minMembers": {"Master": 1}}, None),
        ({"minMembers": {"Worker": 2}}, WorkerRange(2, 6)),
        ({"torchElasticPolicy": {}}, None),
        ({"torchElasticPolicy": {}, "minMembers": {"Worker": 2}}, None),
        ({"torchElasticPolicy": {"numMinReplicas": 2, "replicaStep": 2}}, WorkerRange(2, 6, 2)),
        ({"torchElasticPolicy": {"numMinReplicas": 6}}, WorkerRange(6, 6)),
    ],
)
def test_range_follows_the_policy_or_the_least_members(spec: dict[str, Any], expected: WorkerRange | None) -> None:
    found = described(6, **spec).spec
    assert found.worker_range == expected
    assert found.least_workers == (expected.least if expected else 6)


def test_range_contains_its_grid_only() -> None:
    assert [count for count in range(9) if count in WorkerRange(2, 6, 2)] == [2, 4, 6]


def test_job_without_workers_has_no_range() -> None:
    spec = torchjob.parse(job(torchTaskSpecs={"Master": task()}, minMembers={"Master": 1})).spec
    assert (spec.worker_range, spec.worker_count, spec.is_elastic) == (None, 0, False)
    assert (spec.least_charge, spec.worker_share) == (spec.charge, {})


def test_each_further_worker_is_charged_alike_even_where_another_stage_is_larger() -> None:
    found = described(6, torchElasticPolicy={"numMinReplicas": 2, "mode": "InPlaceRestart"})
    assert found.least_charge == {"jobs": 1, "pods": 4, "cpu": 6000, "memory": 14, GPU: 2}
    assert found.worker_share == {"pods": 1, "cpu": 500, GPU: 1}
    assert found.charge == add(found.least_charge, scale(found.worker_share, 4))
    assert described(6).charge == {"jobs": 1, "pods": 8, "cpu": 6500, "memory": 14, GPU: 6}


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_charge_is_linear_and_never_too_little(
    wanted: int, least: int, further: int, elastic: bool, measured: bool
) -> None:
    policy = {"torchElasticPolicy": {"numMinReplicas": min(least, wanted)}}
    found = described(wanted, **policy if elastic else {"minMembers": {"Worker": min(least, wanted)}})
    if measured:
        found = torchjob.parse(
            found.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
            | {"status": {"measured": {"templates": found.spec.digest, "pods": MEASURED}}}
        )
        assert found.worker_share == {"pods": 1, "cpu": 900, GPU: 1}
    assert found.charge == found.charge_of(wanted)
    assert found.least_charge == found.charge_of(found.spec.least_workers)
    workers = found.spec.least_workers + further
    exact = demand.job_charge(found.spec, found.pod_measurements, workers)
    charged = found.charge_of(workers)
    assert all(charged[name] >= amount for name, amount in exact.items())
    if found.spec.worker_range is not None:
        assert subtract(found.charge_of(workers + 1), charged) == {**scale(charged, 0), **found.worker_share}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"torchElasticPolicy": {"numMinReplicas": 2}}, 2),
        ({"torchElasticPolicy": {"numMinReplicas": 2}, "minMembers": {"Worker": 1}}, 1),
        ({"torchElasticPolicy": {}}, 6),
        ({"minMembers": {"Worker": 3}}, 3),
    ],
)
def test_elastic_job_runs_with_its_least_workers(spec: dict[str, Any], expected: int) -> None:
    found = described(6, **spec).spec
    assert (found.members("Worker"), found.members("Prepare")) == (expected, 2)
