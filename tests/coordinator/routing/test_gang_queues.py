"""The room in queues of the gang scheduler, and the jobs for which this room is enough."""

from typing import Any

import pytest

from coordinator.cache.routing_rules import RoutingRules
from coordinator.routing import gang_queues
from coordinator.routing.gang_queues import Share
from gang import volcano
from gang.values import GangQueue
from tests.support.coordinator.builders import job

GPU = "nvidia.com/gpu"


def queue(name: str, parent: str = "", hard: int | None = None, allocated: int = 0, guarantee: int = 0) -> GangQueue:
    return GangQueue(
        name=name,
        parent=parent,
        capability={} if hard is None else {GPU: hard},
        allocated={GPU: allocated},
        guarantee={GPU: guarantee} if guarantee else {},
    )


def share(name: str, charge: int, bound: int = 0) -> Share:
    return Share(name, {GPU: charge}, {GPU: bound} if bound else {})


def fits(gpus: int, *queues: GangQueue, shares: tuple[Share, ...] = (), **more: Any) -> bool:
    rules = RoutingRules(gang_scheduler="volcano", gang_rooms=gang_queues.rooms({q.name: q for q in queues}, shares))
    asking = job(gang_queue="q", charge={GPU: gpus})
    assert (not gang_queues.shortage(asking, asking.charge, rules)) == gang_queues.has_room(
        asking, asking.charge, rules
    )
    return gang_queues.has_room(asking, asking.charge, rules, **more)


@pytest.mark.parametrize(
    ("most", "queues", "shares"),
    [
        (8, [queue("q", hard=8)], ()),
        (99, [queue("q")], ()),
        (5, [queue("q", hard=8, allocated=3)], ()),  # 3 are used by pods of others
        (4, [queue("q", hard=8)], (share("q", 4),)),  # the job is picked, and not bound yet
        (4, [queue("q", hard=8, allocated=4)], (share("q", 4, 4),)),  # the job is bound, and counted once
        (4, [queue("q", hard=8)], (share("q", 4, 4),)),  # the job is bound, and the scheduler has not counted it yet
        (1, [queue("q", hard=8, allocated=6)], (share("q", 4, 3),)),  # pods of others use 3, and the job 4
        (8, [queue("q", hard=8), queue("other", hard=8)], (share("other", 8),)),
        (6, [queue("q", "up"), queue("up", hard=8)], (share("q", 2),)),
        (6, [queue("q", "up"), queue("up", hard=8), queue("beside", "up")], (share("beside", 2),)),
        (5, [queue("q", "up"), queue("up", hard=8), queue("beside", "up", guarantee=3)], ()),
        (5, [queue("q", "up"), queue("up", hard=8), queue("beside", "up", guarantee=3)], (share("beside", 3),)),
        (8, [queue("q", "up", guarantee=3), queue("up", hard=8)], ()),
        (8, [queue("q", "q", hard=8)], ()),
        (8, [queue("q", "up", hard=9), queue("up", "q", hard=8)], ()),
    ],
)
def test_a_job_has_what_its_queue_and_those_above_leave(most: int, queues: list[GangQueue], shares: Any) -> None:
    assert fits(most, *queues, shares=shares)
    assert most == 99 or not fits(most + 1, *queues, shares=shares)


def test_what_picks_took_since_counts_at_each_level() -> None:
    queues = (queue("q", "up", hard=8), queue("up", hard=8))
    assert fits(4, *queues, taken={"up": {GPU: 4}, "q": {GPU: 2}})
    assert not fits(5, *queues, taken={"up": {GPU: 4}, "q": {GPU: 2}})


def test_queues_of_volcano_are_read_without_amounts_that_are_none() -> None:
    manifest = {
        "metadata": {"name": "q"},
        "spec": {
            "parent": "up",
            "capability": {GPU: "8", "cpu": "2500m", "memory": "lots"},
            "guarantee": {"resource": {"requests.cpu": 1}},
        },
        "status": {"state": "Closing", "allocated": {"memory": "1Gi", "pods": "2"}},
    }
    read = volcano.read_queue(manifest)
    assert (read.capability, read.guarantee) == ({GPU: 8, "cpu": 2500}, {"cpu": 1000})
    assert (read.parent, read.allocated, "Closing" in read.refusal) == ("up", {"memory": 1 << 30, "pods": 2}, True)
    bare = volcano.read_queue({"metadata": {"name": "q"}})
    assert bare == GangQueue(name="q")
