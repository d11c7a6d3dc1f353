"""The signs of life of a coordinator.

One rule: a Redis or an API server that is away fails no check. Users then get the coordinator's own sentence about it.
"""

from dataclasses import dataclass

from coordinator.leader.coordinator import Coordinator
from coordinator.life.checks import Check
from coordinator.life.process_checks import cache_check, loop_checks


@dataclass(frozen=True, slots=True)
class CoordinatorLife:
    """The checks of one coordinator, leading or not."""

    coordinator: Coordinator

    def healthz(self) -> list[Check]:
        """Return a check of each loop."""
        return loop_checks(self.coordinator.turns)

    def readyz(self) -> list[Check]:
        """Return whether the caches are read, so that the coordinator can answer."""
        coordinator = self.coordinator
        stopping = "the process is stopping" if coordinator.stop.is_set() else ""
        return [
            *map(cache_check, coordinator.watches.informers),
            Check("queues", note=coordinator.failing or coordinator.redis.unfit),
            Check("leadership", note=coordinator.leadership.failing),
            Check("shutdown", stopping),
        ]
