"""The coscheduling plugin of kubernetes-sigs/scheduler-plugins (scheduling.x-k8s.io/v1alpha1).

One rule: the pods of a gang may be created at once, because no group has to be let in first.

The scheduler with the plugin has the name that its admin chose, usually a second one beside the cluster's default: a
setting or the templates name it. Any other scheduler binds the pods singly.

A gang that the scheduler has turned down is tried again when a pod of it is made or its PodGroup changes, and else
after five minutes: room that comes free does not wake the gang. So torchq writes the PodGroup of a waiting gang
every 15 s.
"""

from dataclasses import dataclass
from typing import Any

from crds.api_resources import COSCHEDULING_POD_GROUPS, Resource
from crds.resources import quantities
from gang import backend
from gang.backend import Backend
from gang.values import Binding, Gang, GroupView
from kube.api import Manifest

POD_GROUP = "scheduling.x-k8s.io/pod-group"
"""The label of a pod that names its PodGroup."""
SIZE = ("minMember", "minResources")
WAITING = ("Pending", "PreScheduling", "Scheduling")
"""The phases of a group whose gang is not bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coscheduling(Backend):
    """Binds pods by PodGroups."""

    name: str = "coscheduling"
    check: str = (
        "check that the pods have the schedulerName of a scheduler with the plugin Coscheduling (setting "
        "gang_scheduler_name), and that it and its controller run"
    )
    is_fixed: bool = False
    touch_seconds: float | None = 15.0
    resource: Resource = COSCHEDULING_POD_GROUPS

    def size(self, gang: Gang, /) -> dict[str, Any]:
        """Return the minimum and its resources."""
        resources = {name: quantities.format_amount(name, amount) for name, amount in gang.resources.items()}
        return {"minMember": gang.size, "minResources": resources}

    def trim(self, manifest: Manifest, /) -> GroupView:
        """Return the view of a PodGroup, whose pods may be created at once. The phase of a PodGroup may be Failed
        beside running pods.
        """
        phase = (manifest.get("status") or {}).get("phase") or ""
        waits = f"its pods are not bound yet: the group is {phase}" if phase in WAITING else ""
        return backend.view(self.resource, manifest, SIZE, phase="Ready", seen=bool(phase), message=waits)

    def bind(self, gang: Gang, _task_type: str, /) -> Binding:
        """Return the label that names the PodGroup, and the scheduler's name if it is known."""
        return Binding(labels={POD_GROUP: gang.name}, spec=backend.scheduled_by(self.scheduler))
