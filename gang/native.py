"""Kubernetes' own gangs (scheduling.k8s.io PodGroup, feature gate GenericWorkload), v1alpha2 in 1.36, then v1beta1.

One rule: a PodGroup of its own, without a Workload, which is only a template for PodGroups.

minCount is looked at when pods are scheduled and says nothing to pods that run; v1alpha2 does not let it change. A
PodGroup has a finalizer until its pods are gone. kube-apiserver 1.36 takes what is made here (v1alpha2); v1beta1, and
any scheduler that binds by it, was never run.
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
    """Binds by PodGroups, with the cluster's default scheduler or the one a template names."""

    resource: Resource = NATIVE_POD_GROUPS
    name: str = "kubernetes"
    scheduler: str = ""
    together: bool = True
    queues: Resource | None = None

    def create(self, gang: Gang) -> Manifest | None:
        """A PodGroup."""
        return backend.manifest(self.resource, gang, _size(gang))

    def resize(self, gang: Gang, group: GroupView) -> Mapping[str, Any] | None:
        """From v1beta1 on."""
        return None if self.resource == ALPHA_POD_GROUPS else backend.difference(_size(gang), group.spec)

    def trim(self, manifest: Manifest) -> GroupView:
        """Its pods may be made at once."""
        return backend.view(self.resource, manifest, SIZE, phase="Ready")

    def refusal(self, _queue: str, _found: Manifest | None) -> tuple[str, str] | None:
        """There are no queues."""
        return None

    def bind(self, gang: Gang, _task_type: str) -> Binding:
        """By a field of the pod's spec."""
        return Binding(spec={"schedulingGroup": {"podGroupName": gang.name}})


def _size(gang: Gang) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": gang.size}}}
