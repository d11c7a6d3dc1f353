"""The plan of resizes as any coordinator shows it, without doing anything about it.

One rule: the functions are those of the leader. A coordinator that does not lead remembers no idle room, so it shows
every growth as one that waits for the room to be idle for long enough.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from coordinator.autoscale.memory import Memory
from coordinator.cache import autoscaled_jobs
from coordinator.cache.watches import Watches
from coordinator.query import scale_plan
from coordinator.query.documents import Document
from coordinator.routing import elastic_jobs
from coordinator.routing.elastic_jobs import Circumstances
from coordinator.settings import Settings
from queues.resizing import plan as resizing
from queues.values import Snapshot


def describe(
    watches: Watches,
    memory: Memory,
    settings: Settings,
    snapshot: Callable[[], Snapshot],
    *,
    leading: bool,
    clock: Callable[[], float] = time.time,
) -> Document:
    """Return the document of the plan as it would be now. Raises QueueError if the store cannot be read."""
    now, views = clock(), watches.autoscaled.values()
    circumstances = Circumstances(
        rules=replace(watches.rules(), implicit=settings.implicit_queues),
        now=now,
        idle_seconds=settings.idle_seconds,
        requested=watches.requests.is_under_way,
        refused=memory.refused,
        late=memory.late,
        slower=memory.gains.small,
    )
    jobs = [found for view in views if (found := elastic_jobs.of(view, circumstances)) is not None]
    obstacles = {view.key: elastic_jobs.growth_obstacle(view, circumstances) for view in views}
    messages = {
        view.key: scaling.target.message
        for view in views
        if (scaling := autoscaled_jobs.of(view)) is not None and scaling.target is not None
    }
    planned = resizing.dry_run(snapshot(), settings.rules, jobs, now, memory.idle_since)
    return scale_plan.document(planned, jobs, obstacles, messages, on=settings.autoscale == "on", leading=leading)
