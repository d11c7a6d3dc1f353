"""The metrics that a coordinator reads off its parts when a page is made.

One rule: every number is in memory. A page waits for no Redis, no API server and no pick.
"""

import time
from collections.abc import Callable, Iterator

from coordinator.http import coordinator_server, pool_reading
from coordinator.leader.coordinator import Coordinator
from coordinator.metrics import leader_metrics, process_metrics, process_page
from coordinator.metrics.queue_gauge_reader import QueueGaugeReader
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Sample, number
from coordinator.query.queries import StoreQueries
from queues.storage.stats import QueueStats


def queue_gauge_reader(
    coordinator: Coordinator, queries: StoreQueries, stats: Callable[[], QueueStats], queues: QueueNames
) -> QueueGaugeReader:
    """Return the reading of the queues for the gauges of a leader."""
    return QueueGaugeReader(
        snapshot=queries.snapshot,
        stats=stats,
        jobs=coordinator.watches.jobs.values,
        policies=lambda: coordinator_server.stop_policies(coordinator),
        leading=lambda: coordinator.leadership.leading,
        cost=coordinator.settings.cost,
        queues=queues,
        fragments=lambda: pool_reading.fragments(coordinator),
    )


def samples(coordinator: Coordinator) -> Iterator[Sample]:
    """Yield who leads, whether the leader's loop turns, whether Redis answers and is fit, and how often watches began
    again."""
    leads = coordinator.leadership.leading
    yield number(leader_metrics.MASTER_STATUS, leads, leader_metrics.LEASE_NAME)
    if leads:
        age = next((turn.age for turn in coordinator.turns.loops if turn.name == "term"), 0.0)
        yield number(leader_metrics.LAST_TURN, time.time() - age)
        if coordinator.last_epoch >= coordinator.leadership.epoch:  # else this term has not begun to rebuild
            yield number(leader_metrics.EPOCH, coordinator.last_epoch)
    if coordinator.redis.answers is not None:
        yield number(process_metrics.REDIS_UP, coordinator.redis.answers)
    if coordinator.redis.answers:
        yield number(process_metrics.REDIS_FIT, not coordinator.redis.unfit)
    watches = coordinator.watches
    yield from process_page.restarts(
        (*watches.informers, *watches.foreign.informers, *watches.requests.kinds.informers)
    )
