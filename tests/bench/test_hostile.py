"""The jobs that the attacker and the other tenant submit in `bench hostile`."""

from typing import Any

import pytest

from bench.benchmarks import hostile
from bench.benchmarks.hostile import Options
from crds.torchjob import torchjob
from crds.torchjob.demand import MOST_RESOURCES
from crds.torchjob.torchjob import TorchJob

OURS = "bench-1"


def submitted(attack: str, number: int) -> TorchJob:
    """Return a job of the attacker, as an API server stores it."""
    job: dict[str, Any] = hostile.attacking(attack, OURS, number)
    stored = {"namespace": f"{OURS}-evil", "uid": str(number), "creationTimestamp": "2026-01-01T00:00:00Z"}
    return torchjob.parse({**job, "metadata": {**job["metadata"], **stored}})


@pytest.mark.parametrize(
    ("attack", "queues", "suspended", "held"),
    [
        ("names", {"invented-0", "invented-1"}, True, False),
        ("victim", {f"{OURS}-0"}, True, False),
        ("waiting", {f"{OURS}-evil"}, False, False),
        ("failing", {f"{OURS}-evil"}, False, False),
        ("resources", {f"{OURS}-evil"}, False, True),
    ],
)
def test_each_attack_submits_valid_jobs_to_its_queues(
    attack: str, queues: set[str], suspended: bool, held: bool
) -> None:
    jobs = [submitted(attack, number) for number in range(2)]
    assert {job.queue for job in jobs} == queues
    assert {job.spec.suspend for job in jobs} == {suspended}
    assert {job.spec.scheduling_policy.hold for job in jobs} == {held}
    assert len({job.metadata.name for job in jobs}) == 2


def test_the_resources_attack_names_the_maximum_number_of_new_resources_in_each_job() -> None:
    first, second = (set(submitted("resources", number).spec.charge) - {"jobs", "pods"} for number in range(2))
    assert len(first) == len(second) == MOST_RESOURCES
    assert not first & second


def test_jobs_of_the_other_tenant_arrive_evenly() -> None:
    planned = list(hostile.plan("queue", "alone", Options(rate=4.0, seconds=2.0)))
    assert [each.due for each in planned] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]
    assert len({each.job["metadata"]["name"] for each in planned}) == 8
