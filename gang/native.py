"""Kubernetes' own gangs (scheduling.k8s.io PodGroup, feature gate GenericWorkload), v1alpha2 in 1.36, then v1beta1.

One rule: each gang has a PodGroup of its own, without a Workload, which is only a template for PodGroups.

The scheduler reads minCount only when it binds pods, so a change of minCount does not affect running pods; v1alpha2
forbids the change. A PodGroup has a finalizer until its pods no longer exist. In v1beta1 the priority of a PodGroup is
that of its own class, or 0 without a class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS, Resource
from gang import backend
from gang.backend import Backend
from gang.values import Binding, Gang, GroupView
from kube.api import Manifest

SIZE = ("schedulingPolicy",)
SCHEDULED = ("PodGroupScheduled", "PodGroupInitiallyScheduled")
"""The condition of a group whose pods are bound: in 1.36, and since 1.37."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Native(Backend):
    """Binds pods by PodGroups, with the cluster's default scheduler or the scheduler that a template names."""

    name: str = "kubernetes"
    check: str = (
        "check that kube-scheduler runs, with the feature gate GenericWorkload (in 1.36 with GangScheduling, too)"
    )
    is_fixed: bool = False
    resource: Resource = NATIVE_POD_GROUPS

    def size(self, gang: Gang, /) -> dict[str, Any]:
        """Return the policy with the minimum."""
        return {"schedulingPolicy": {"gang": {"minCount": gang.size}}}

    def create(self, gang: Gang, /) -> Manifest | None:
        """Return a PodGroup."""
        named = {"priorityClassName": gang.priority_class} if gang.priority_class and not self.is_fixed else {}
        return backend.manifest(self.resource, gang, {**self.size(gang), **named})

    def trim(self, manifest: Manifest, /) -> GroupView:
        """Return the view of a PodGroup, whose pods may be created at once."""
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        none: Mapping[str, Any] = {}
        found = next((condition for condition in conditions if condition.get("type") in SCHEDULED), none)
        against = str(found.get("message") or found.get("reason") or "") if found.get("status") == "False" else ""
        waits = f"its pods are not bound yet: {against}" if against else ""
        return backend.view(self.resource, manifest, SIZE, phase="Ready", seen=bool(found), message=waits)

    def bind(self, gang: Gang, _task_type: str, /) -> Binding:
        """Return the field of the pod's spec that names the PodGroup."""
        return Binding(spec={"schedulingGroup": {"podGroupName": gang.name}})


ALPHA = Native(resource=ALPHA_POD_GROUPS, is_fixed=True)
"""The first version, which forbids a change of the size."""
