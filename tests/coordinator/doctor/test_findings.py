"""Notes of the doctor to an admin: they are no disagreement between the cluster and Redis."""

import pytest

from coordinator.doctor.findings import notes
from queues.values import QueueSpec
from tests.support.queues.builders import spec


@pytest.mark.parametrize(
    ("queues", "told"),
    [
        ([], []),
        ([spec("a", pods=0), spec("b", pods=9, cpu=1)], []),
        ([spec("b", cpu=1), spec("a", pods=9)], ["no quota of pods limits b: "]),
        ([spec(name) for name in "fdecab"], ["no quota of pods limits a, b, c and 3 more: "]),
    ],
)
def test_queues_without_a_quota_of_pods_are_named(queues: list[QueueSpec], told: list[str]) -> None:
    found = list(notes(queues))
    assert [note[: len(start)] for note, start in zip(found, told, strict=True)] == told
