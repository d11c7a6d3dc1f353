"""The plan of resizes as any coordinator shows it, without carrying the plan out.

One rule: the dry run calls the functions that the leader calls. A coordinator that does not lead remembers no idle
room, so the dry run shows every growth as waiting until the room has been idle for long enough.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from coordinator.cache.watches import Watches
from coordinator.elastic import elastic_jobs
from coordinator.elastic.idle_history import Memory
from coordinator.query import scale_plan
from coordinator.query.questions import Document
from coordinator.settings import Settings
from queues.placement.places import Places
from queues.resizing import resize_plan as resizing
from queues.values import Snapshot


def describe(
    watches: Watches,
    memory: Memory,
    settings: Settings,
    snapshot: Callable[[], Snapshot],
    *,
    leading: bool,
    clock: Callable[[], float] = time.time,
    places: Places | None = None,
) -> Document:
    """Return the document of the plan as it would be now. Raises QueueError if the store cannot be read.

    `places` are a copy of the places of jobs on nodes, where they count."""
    now, views = clock(), watches.autoscaled.values()
    rules = replace(watches.rules(), implicit=settings.implicit_queues)
    circumstances = memory.circumstances(rules, now, watches.requests.is_under_way)
    jobs = [found for view in views if (found := elastic_jobs.of(view, circumstances)) is not None]
    obstacles = {view.key: elastic_jobs.growth_obstacle(view, circumstances) for view in views}
    messages = {
        view.key: scaling.target.message
        for view in views
        if (scaling := view.autoscaling) is not None and scaling.target is not None
    }
    domains = {view.key: view.admission.domain for view in views if view.admission is not None}
    planned = resizing.dry_run(snapshot(), settings.rules, jobs, now, memory.idle_since, places)
    is_on = settings.autoscale == "on"
    return scale_plan.document(planned, jobs, obstacles, messages, domains, on=is_on, leading=leading)
