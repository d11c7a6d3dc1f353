"""The checks of a recorder: its loops and caches. A database that is away fails no check: a restart would not help."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.life.health_checks import Check
from coordinator.life.process_checks import cache_check, loop_checks
from coordinator.recorder.database import DatabaseAccess
from coordinator.recorder.sights import Sights
from kube.process.turns import Turns


@dataclass(frozen=True, slots=True)
class RecorderLife:
    """The checks of one recorder."""

    sights: Sights
    database: DatabaseAccess
    turns: Turns

    def healthz(self) -> Sequence[Check]:
        """Return a check of each loop."""
        return loop_checks(self.turns)

    def readyz(self) -> Sequence[Check]:
        """Return whether the caches are read."""
        return [*map(cache_check, self.sights.informers), Check("database", note=self.database.problem)]
