"""Kubernetes' own gangs (scheduling.k8s.io PodGroup, feature gate GenericWorkload), v1alpha2 in 1.36, then v1beta1.

One rule: each gang has a PodGroup of its own, without a Workload, which is only a template for PodGroups.

The scheduler reads minCount only when it binds pods, so it does not affect running pods; v1alpha2 forbids changing it.
A PodGroup has a finalizer until its pods no longer exist. kube-apiserver 1.36 accepts the PodGroups of this module
(v1alpha2); v1beta1, and any scheduler that binds by it, have never been tested.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS, Resource
from gang import backend
from gang.values import Binding, Gang, GroupView
from kube.api import Manifest

SIZE = ("schedulingPolicy",)


@dataclass(frozen=True, slots=True)
class Native:
    """Binds pods by PodGroups, with the cluster's default scheduler or the one that a template names."""

    resource: Resource = NATIVE_POD_GROUPS
    name: str = "kubernetes"
    scheduler: str = ""
    together: bool = True
    queues: Resource | None = None

    def create(self, gang: Gang) -> Manifest | None:
        """Return a PodGroup."""
        return backend.manifest(self.resource, gang, _size(gang))

    def resize(self, gang: Gang, group: GroupView) -> Mapping[str, Any] | None:
        """Return a patch of the size; None in v1alpha2, which forbids a change."""
        return None if self.resource == ALPHA_POD_GROUPS else backend.spec_patch(_size(gang), group.spec)

    def trim(self, manifest: Manifest) -> GroupView:
        """Return the view of a PodGroup, whose pods may be created at once."""
        return backend.view(self.resource, manifest, SIZE, phase="Ready")

    def refusal(self, _queue: str, _manifest: Manifest | None) -> tuple[str, str] | None:
        """Return no refusal, because there are no queues."""
        return None

    def bind(self, gang: Gang, _task_type: str) -> Binding:
        """Return the field of the pod's spec that names the PodGroup."""
        return Binding(spec={"schedulingGroup": {"podGroupName": gang.name}})


def _size(gang: Gang) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": gang.size}}}
