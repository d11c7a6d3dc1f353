"""Koordinator: a gang is what its pods' annotations say.

One rule: all values are strings, and the same on every pod: Koordinator takes those of the first pod it sees, for good.

The pods that run count beside those that wait (match-policy waiting-and-running): so a pod that is replaced is bound
alone, and a job that is restarted whole is bound whole again. This module was never run against a Koordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.api import Manifest
from crds.resources import Resource
from gang.values import Binding, Gang, GroupView

PREFIX = "gang.scheduling.koordinator.sh"
WAITING_TIME = "600s"
"""How long pods of a gang keep the room they were given while others are missing: Koordinator's default, said."""


@dataclass(frozen=True, slots=True)
class Koordinator:
    """Binds by annotations; no object stands for a gang."""

    name: str = "koordinator"
    scheduler: str = "koord-scheduler"
    together: bool = True
    resource: Resource | None = None
    queues: Resource | None = None

    def create(self, _gang: Gang) -> Manifest | None:
        """The pods say it."""
        return None

    def resize(self, _gang: Gang, _group: GroupView) -> Mapping[str, Any] | None:
        """Koordinator ignores annotations that change."""
        return None

    def trim(self, _manifest: Manifest) -> GroupView:
        """There are no groups."""
        raise NotImplementedError("Koordinator's gangs have no object that is ours")

    def refusal(self, _queue: str, _found: Manifest | None) -> tuple[str, str] | None:
        """Quotas of its own keep pods waiting, which shows at the pods."""
        return None

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
