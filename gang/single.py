"""No gang scheduler: pods are created once the pool has room for all of them, and bound one by one.

One rule: pods carry nothing for a scheduler.
"""

from dataclasses import dataclass

from gang.backend import Objectless
from gang.values import Binding, Gang


@dataclass(frozen=True, slots=True)
class Single(Objectless):
    """Leaves the binding to the scheduler that a template names, or to the cluster's default one."""

    name: str = "none"
    scheduler: str = ""
    together: bool = False

    def bind(self, _gang: Gang, _task_type: str) -> Binding:
        """Return an empty binding."""
        return Binding()
