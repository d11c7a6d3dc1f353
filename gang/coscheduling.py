"""The coscheduling plugin of kubernetes-sigs/scheduler-plugins (scheduling.x-k8s.io/v1alpha1).

One rule: its pods may be made at once; nothing has to be let in first.

The scheduler that the plugin is part of has the name its admin gave it: a template says it, or it is the cluster's
default one. This module was never run against one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crds.api_resources import COSCHEDULING_POD_GROUPS, Resource
from crds.resources import quantities
from gang import backend
from gang.values import Binding, Gang, GroupView
from kube.api import Manifest

POD_GROUP = "scheduling.x-k8s.io/pod-group"
"""Label on a pod."""
SIZE = ("minMember", "minResources")


@dataclass(frozen=True, slots=True)
class Coscheduling:
    """Binds by PodGroups."""

    name: str = "coscheduling"
    scheduler: str = ""
    together: bool = True
    resource: Resource = COSCHEDULING_POD_GROUPS
    queues: Resource | None = None

    def create(self, gang: Gang) -> Manifest | None:
        """A PodGroup."""
        return backend.manifest(self.resource, gang, _size(gang))

    def resize(self, gang: Gang, group: GroupView) -> Mapping[str, Any] | None:
        """Both together."""
        return backend.difference(_size(gang), group.spec)

    def trim(self, manifest: Manifest) -> GroupView:
        """Its phases say how far its pods are, and nothing about whether they may be made."""
        return backend.view(self.resource, manifest, SIZE, phase="Ready")

    def refusal(self, _queue: str, _found: Manifest | None) -> tuple[str, str] | None:
        """There are no queues."""
        return None

    def bind(self, gang: Gang, _task_type: str) -> Binding:
        """By a label."""
        return Binding(labels={POD_GROUP: gang.name})


def _size(gang: Gang) -> dict[str, Any]:
    resources = {name: quantities.text(name, amount) for name, amount in gang.resources.items()}
    return {"minMember": gang.size, "minResources": resources}
