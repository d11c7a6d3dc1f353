"""The leader's memory of idle room, and of changes that were not carried out.

One rule: all of this state may be lost at any moment. A leader that remembers nothing only waits longer before it grows
a job.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.elastic import elastic_jobs
from coordinator.elastic.elastic_jobs import Circumstances
from coordinator.elastic.gains import Gains
from coordinator.settings import Settings
from crds.keys import JobKey
from queues.resizing.values import NO_IDLE_ROOM, IdleRoom
from queues.values import Reservation

LATE_SECONDS = 60.0
"""How much longer than their grace workers may take to go before nobody counts on their room any more."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """The memory of one process. One thread changes this object; each of its values may be read in any thread."""

    settings: Settings
    idle_since: IdleRoom = field(default_factory=lambda: NO_IDLE_ROOM)
    seen: frozenset[str] = frozenset()
    """The queues that the plans of this turn have looked at."""
    refused: Mapping[JobKey, float] = field(default_factory=dict)
    """The jobs whose last change no worker process has carried out, and until when they are left alone."""
    late: frozenset[JobKey] = frozenset()
    """The jobs with workers that do not go in time."""
    gains: Gains = field(default_factory=Gains)
    _leaving_since: dict[JobKey, float] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything: a new term begins."""
        self.idle_since, self.refused, self.late, self._leaving_since = NO_IDLE_ROOM, {}, frozenset(), {}
        self.gains, self.seen = Gains(), frozenset()

    def forget_idle_room(self) -> None:
        """Forget how long room has been idle, because no plan reads it now."""
        self.idle_since = NO_IDLE_ROOM

    def update(self, jobs: Mapping[JobKey, JobView], idle_since: IdleRoom, now: float) -> None:
        """Note how long room has been idle, and which workers are on their way out."""
        self.idle_since = idle_since
        self.refused = {key: until for key, until in self.refused.items() if until > now and key in jobs}
        leaving = [key for key, job in jobs.items() if elastic_jobs.is_removing(job)]
        self._leaving_since = {key: self._leaving_since.get(key, now) for key in leaving}
        late = frozenset(key for key in leaving if now - self._leaving_since[key] > self._patience(jobs[key]))
        for key in late - self.late:
            log.warning("%s: workers that it gives back do not end: nobody waits for their room any more", key)
        self.late = late

    def refuse(self, job: JobView, now: float) -> None:
        """Note that no worker process has carried out the last change of a job."""
        scaling = job.autoscaling
        if job.key not in self.refused:
            log.warning("%s: no worker process has begun with its new size in time: it is taken back", job.key)
        self.refused = {**self.refused, job.key: now + (scaling.every if scaling is not None else 0.0)}

    def circumstances(
        self,
        rules: RoutingRules,
        now: float,
        requested: Callable[[JobKey], bool],
        held: Mapping[JobKey, Reservation] = MappingProxyType({}),
    ) -> Circumstances:
        """Return the facts beside a job that the next plan uses."""
        return Circumstances(
            rules=rules,
            now=now,
            idle_seconds=self.settings.idle_seconds,
            idle_grace=self.settings.idle_grace,
            held=held,
            requested=requested,
            refused=self.refused,
            late=self.late,
            slower=self.gains.small,
        )

    def _patience(self, job: JobView) -> float:
        """Return how long the workers of a job may take to go."""
        scaling, settings = job.autoscaling, self.settings
        seconds = min(scaling.exit_seconds, settings.longest_grace) if scaling is not None else 0.0
        return seconds + settings.dead_node_grace + LATE_SECONDS
