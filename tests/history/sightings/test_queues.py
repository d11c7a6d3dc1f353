"""The rows of queues and of the pool."""

from typing import Any

import pytest

from history.rows import PoolRow, QueueRow
from history.sightings import queues

CREATED, SEEN = 1767322800, 1767324000


@pytest.mark.parametrize(
    ("generation", "weight", "deleted", "start", "expected"),
    [
        (1, 3, False, CREATED, 3),
        (2, 3, False, SEEN, 3),
        (2, 3, True, SEEN, 0),
        (2, "heavy", False, SEEN, 1),
        (2, None, False, SEEN, 1),
        (2, 10**9, False, SEEN, 1),
    ],
)
def test_a_weight_is_valid_from_the_creation_of_a_queue_or_from_the_sight_of_its_change(
    generation: int, weight: Any, deleted: bool, start: int, expected: int
) -> None:
    metadata = {"name": "team-a", "resourceVersion": "7", "generation": generation}
    trimmed = queues.trim_queue(
        {"metadata": metadata | {"creationTimestamp": "2026-01-02T03:00:00Z"}, "spec": {"weight": weight}, "status": {}}
    )
    assert queues.of_queue(trimmed, SEEN, deleted) == QueueRow(name="team-a", start=start, version=7, weight=expected)


def test_a_pool_keeps_its_amounts() -> None:
    assert queues.of_pool({"cpu": 64000, "memory": 2**60, "none": 0}, SEEN) == PoolRow(
        start=SEEN, amounts={"cpu": 64000, "memory": 2**60}
    )
