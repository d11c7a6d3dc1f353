"""No gang scheduler: pods are made once the pool has room for all of them, and bound one by one.

One rule: it says nothing to anybody.
"""

from dataclasses import dataclass

from gang.backend import Objectless
from gang.values import Binding, Gang


@dataclass(frozen=True, slots=True)
class Single(Objectless):
    """Whatever scheduler the templates name, or the cluster's default one."""

    name: str = "none"
    scheduler: str = ""
    together: bool = False

    def bind(self, _gang: Gang, _task_type: str) -> Binding:
        """Nothing."""
        return Binding()
