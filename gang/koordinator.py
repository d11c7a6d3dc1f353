"""Koordinator: a gang is what its pods' annotations say.

One rule: all values are strings, and the same on every pod: Koordinator takes those of the first pod it sees, for good.

The pods that run count beside those that wait (match-policy waiting-and-running): so a pod that is replaced is bound
alone, and a job that is restarted whole is bound whole again. This module was never run against a Koordinator.
"""

from dataclasses import dataclass

from gang.backend import Objectless
from gang.values import Binding, Gang

PREFIX = "gang.scheduling.koordinator.sh"
WAITING_TIME = "600s"
"""How long pods of a gang keep the room they were given while others are missing: Koordinator's default, said."""


@dataclass(frozen=True, slots=True)
class Koordinator(Objectless):
    """Binds by annotations, and ignores those that change. What its own quotas keep waiting shows at the pods."""

    name: str = "koordinator"
    scheduler: str = "koord-scheduler"
    together: bool = True

    def bind(self, gang: Gang, _task_type: str) -> Binding:
        """By annotations and the scheduler's name."""
        annotations = {
            f"{PREFIX}/name": gang.name,
            f"{PREFIX}/min-available": str(gang.size),
            f"{PREFIX}/total-number": str(gang.total),
            f"{PREFIX}/mode": "Strict",
            f"{PREFIX}/match-policy": "waiting-and-running",
            f"{PREFIX}/waiting-time": WAITING_TIME,
        }
        return Binding(annotations=annotations, spec={"schedulerName": self.scheduler})
