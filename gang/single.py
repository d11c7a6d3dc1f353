"""No gang scheduler: pods are made once the pool has room for all of them, and bound one by one.

One rule: it says nothing to anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.api import Manifest
from crds.resources import Resource
from gang.values import Binding, Gang, GroupView


@dataclass(frozen=True, slots=True)
class Single:
    """Whatever scheduler the templates name, or the cluster's default one."""

    name: str = "none"
    scheduler: str = ""
    together: bool = False
    resource: Resource | None = None
    queues: Resource | None = None

    def create(self, _gang: Gang) -> Manifest | None:
        """Nothing stands for a gang."""
        return None

    def resize(self, _gang: Gang, _group: GroupView) -> Mapping[str, Any] | None:
        """Nothing to change."""
        return None

    def trim(self, _manifest: Manifest) -> GroupView:
        """There are no groups."""
        raise NotImplementedError("pods that are bound one by one have no group")

    def refusal(self, _queue: str, _found: Manifest | None) -> tuple[str, str] | None:
        """There are no queues."""
        return None

    def bind(self, _gang: Gang, _task_type: str) -> Binding:
        """Nothing."""
        return Binding()
