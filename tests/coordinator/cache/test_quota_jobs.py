"""Refused jobs that are routed again when the limits that refused them change."""

import pytest

from coordinator.cache.quota_jobs import RefusedJobs
from gang.values import GangQueue


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (None, GangQueue(name="small"), True),
        (GangQueue(name="small", refusal="it is Closed"), GangQueue(name="small"), True),
        (GangQueue(name="small", capability={"cpu": 1}), GangQueue(name="small", capability={"cpu": 2}), True),
        (GangQueue(name="small"), GangQueue(name="small", allocated={"cpu": 1}), False),
        (GangQueue(name="small"), None, False),
    ],
)
def test_refused_jobs_are_tried_again_when_a_queue_of_the_scheduler_has_other_limits(
    before: GangQueue | None, after: GangQueue | None, counts: bool
) -> None:
    jobs = RefusedJobs()
    jobs.note_queue(before, after)
    assert jobs.nodes == counts
