"""Koordinator: annotations of the pods describe a gang.

One rule: all values are strings, and equal on every pod of the gang. Koordinator takes those of the first pod that it
sees, and never reads them again.

Running pods count beside waiting ones (match-policy waiting-and-running). A replaced pod is therefore bound alone, and
a job that is restarted as a whole is bound as a whole again. This module has never run against a Koordinator.
"""

from dataclasses import dataclass

from gang.backend import Objectless
from gang.values import Binding, Gang

PREFIX = "gang.scheduling.koordinator.sh"
WAITING_TIME = "600s"
"""How long pods of a gang keep their resources while others are missing; this is Koordinator's default, made explicit.
"""


@dataclass(frozen=True, slots=True)
class Koordinator(Objectless):
    """Binds pods by annotations. If Koordinator's own quotas make pods wait, only the pods show that."""

    name: str = "koordinator"
    scheduler: str = "koord-scheduler"
    together: bool = True

    def bind(self, gang: Gang, _task_type: str) -> Binding:
        """Return the annotations, and the scheduler's name."""
        annotations = {
            f"{PREFIX}/name": gang.name,
            f"{PREFIX}/min-available": str(gang.size),
            f"{PREFIX}/total-number": str(gang.total),
            f"{PREFIX}/mode": "Strict",
            f"{PREFIX}/match-policy": "waiting-and-running",
            f"{PREFIX}/waiting-time": WAITING_TIME,
        }
        return Binding(annotations=annotations, spec={"schedulerName": self.scheduler})
