"""The coscheduling plugin of kubernetes-sigs/scheduler-plugins (scheduling.x-k8s.io/v1alpha1).

One rule: the pods of a gang may be created at once, because no group has to be let in first.

The scheduler with the plugin has the name that its admin chose: a template names it, or it is the cluster's default.
This module has never run against such a scheduler.
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
"""The label of a pod that names its PodGroup."""
SIZE = ("minMember", "minResources")


@dataclass(frozen=True, slots=True)
class Coscheduling:
    """Binds pods by PodGroups."""

    name: str = "coscheduling"
    scheduler: str = ""
    together: bool = True
    resource: Resource = COSCHEDULING_POD_GROUPS
    queues: Resource | None = None

    def create(self, gang: Gang) -> Manifest | None:
        """Return a PodGroup."""
        return backend.manifest(self.resource, gang, _size(gang))

    def resize(self, gang: Gang, group: GroupView) -> Mapping[str, Any] | None:
        """Return a patch of both sizes."""
        return backend.spec_patch(_size(gang), group.spec)

    def trim(self, manifest: Manifest) -> GroupView:
        """Return the view of a PodGroup. Its phase reports the state of its pods, and not whether they may be
        created."""
        return backend.view(self.resource, manifest, SIZE, phase="Ready")

    def refusal(self, _queue: str, _manifest: Manifest | None) -> tuple[str, str] | None:
        """Return no refusal, because there are no queues."""
        return None

    def bind(self, gang: Gang, _task_type: str) -> Binding:
        """Return the label that names the PodGroup."""
        return Binding(labels={POD_GROUP: gang.name})


def _size(gang: Gang) -> dict[str, Any]:
    resources = {name: quantities.format_amount(name, amount) for name, amount in gang.resources.items()}
    return {"minMember": gang.size, "minResources": resources}
