"""Koordinator: annotations of the pods describe a gang.

One rule: all values are strings, and equal on every pod of the gang. Koordinator takes the annotations of the first pod
that it sees, and never reads these annotations again.

Once a gang has its minimum, the scheduler forgets the pods of the gang that it has not tried until then. So a gang has
exactly its minimum of pods; the others are made once it is bound, and name the scheduler alone.
"""

from dataclasses import dataclass

from gang.backend import Backend
from gang.values import Binding, Gang

PREFIX = "gang.scheduling.koordinator.sh"
WAITING_TIME = "600s"
"""How long pods of a gang keep their resources while others are missing; this is Koordinator's default, made explicit.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Koordinator(Backend):
    """Binds pods by annotations. If Koordinator's own quotas make pods wait, only the pods show the wait."""

    name: str = "koordinator"
    scheduler: str = "koord-scheduler"
    check: str = "check that koord-scheduler runs, with its plugin Coscheduling"

    def bind(self, gang: Gang, _task_type: str, /) -> Binding:
        """Return the annotations, and the scheduler's name."""
        annotations = {
            f"{PREFIX}/name": f"{gang.name}-{gang.size}",  # it never reads the size of a gang that it knows again
            f"{PREFIX}/min-available": str(gang.size),
            f"{PREFIX}/total-number": str(gang.size),
            f"{PREFIX}/mode": "Strict",
            f"{PREFIX}/match-policy": "waiting-and-running",
            f"{PREFIX}/waiting-time": WAITING_TIME,
        }
        return Binding(annotations=annotations, spec={"schedulerName": self.scheduler})
