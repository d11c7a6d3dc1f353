"""The interface to a gang scheduler: the values that it needs, and the values that it reports.

One rule: pure, and the same few verbs for all schedulers. A group is deleted like any object, so the backend has no
method for the deletion.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crds import integers, labels, owners, timestamps
from crds.api_resources import Resource
from crds.resources import quantities
from gang.values import Binding, Gang, GroupView
from kube.api import Manifest


def scheduled_by(scheduler: str) -> dict[str, str]:
    """Return the fields of a pod's spec that name its scheduler; none if the template or the cluster's default
    decides."""
    return {"schedulerName": scheduler} if scheduler else {}


def manifest(resource: Resource, gang: Gang, spec: Mapping[str, Any]) -> Manifest:
    """Return the object of a gang, owned by the job so that it is deleted with the job."""
    metadata = {"name": gang.name, "namespace": gang.namespace}
    owned = {"labels": dict(gang.labels), "ownerReferences": [dict(gang.owner)]}
    return resource.manifest({**metadata, **owned}, spec=dict(spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One scheduler that binds pods all or none. By default, pods have no fields for a gang, and no object stands for a
    gang."""

    name: str
    """The name in spec.schedulingPolicy.gangScheduler."""
    scheduler: str = ""
    """The schedulerName of the gang's pods; empty if the template or the cluster's default decides."""
    check: str
    """What to check if the gang's pods are bound singly, or nobody looks at them."""
    together: bool = True
    """Whether the scheduler binds all pods of a stage together, so that they are created together."""
    is_fixed: bool = True
    """Whether the size of a gang cannot change while it has pods. It has exactly its minimum of pods then: the others,
    and those that replace any, are bound by themselves once the gang is bound."""
    touch_seconds: float | None = None
    """The interval in which the object of a waiting gang is written, since the scheduler does not see that room has
    become free; None if it does."""
    resource: Resource | None = None
    """The kind of object that stands for a gang; None if the pods alone describe it."""
    queues: Resource | None = None
    """The kind of the scheduler's own queues; None if it has none."""

    def size(self, _gang: Gang, /) -> dict[str, Any]:
        """Return the fields of the spec of a group that give the gang its size."""
        return {}

    def create(self, gang: Gang, /) -> Manifest | None:
        """Return the object that stands for a gang; None if no object stands for a gang."""
        return None if self.resource is None else manifest(self.resource, gang, self.size(gang))

    def resize(self, gang: Gang, group: GroupView, /) -> Mapping[str, Any] | None:
        """Return the merge patch that gives a group the size of a gang; None if it has that size."""
        return spec_patch(self.size(gang), group.spec)

    def trim(self, _manifest: Manifest, /) -> GroupView:
        """Return the view of a group that carries torchq's labels. Raises NotImplementedError where no object stands
        for a gang.
        """
        raise NotImplementedError("this gang scheduler has no object for a gang")

    def refusal(self, _queue: str, _manifest: Manifest | None, /) -> tuple[str, str] | None:
        """Return the reason and the message why a group in a queue of the scheduler is not let in; None if it may
        be."""
        return None

    def bind(self, gang: Gang, _task_type: str, /) -> Binding:
        """Return the binding of a pod: the fields by which the pod is bound with its gang. The name of its task is in
        lower case.
        """
        return self.bind_alone(gang.queue)

    def bind_alone(self, _queue: str, /) -> Binding:
        """Return the binding of a pod of no gang, which the same scheduler binds, in one of its queues."""
        return Binding(spec=scheduled_by(self.scheduler))


def view(resource: Resource, manifest: Manifest, fields: tuple[str, ...], **more: Any) -> GroupView:
    """Return the view of a group with the fields that all schedulers share. `fields` are the fields of the spec that
    define its size."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    group_labels: Mapping[str, str] = metadata.get("labels") or {}
    time = (metadata.get("annotations") or {}).get(labels.TOUCHED) or metadata.get("creationTimestamp")
    return GroupView(
        resource=resource,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=owners.job_uid(metadata),
        attempt=integers.parse(group_labels.get(labels.ATTEMPT), -1),  # -1 matches nothing
        written=timestamps.seconds_or_none(time) or 0.0,
        spec={name: _canonical(name, spec[name]) for name in fields if name in spec},
        deleting="deletionTimestamp" in metadata,
        since=timestamps.seconds_or_none(metadata.get("creationTimestamp")),
        version=integers.parse(metadata.get("resourceVersion"), 0),
        **more,
    )


def touch(now: float) -> dict[str, Any]:
    """Return the merge patch that shows a group to its scheduler again."""
    return {"metadata": {"annotations": {labels.TOUCHED: timestamps.format_time(now)}}}


def _canonical(field: str, value: Any) -> Any:
    """Return the value with amounts in one notation, because the same amount can be written in several notations."""
    if field != "minResources" or not isinstance(value, Mapping):
        return value
    return {name: _amount(name, quantity) for name, quantity in value.items()}


def _amount(name: str, quantity: Any) -> Any:
    try:
        return quantities.format_amount(name, quantities.parse(name, quantity))
    except ValueError:
        return quantity


def spec_patch(target: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the merge patch from the current spec to the target; a name in a map that the target lacks is removed."""
    changes = {
        name: _field_patch(value, current.get(name)) for name, value in target.items() if current.get(name) != value
    }
    return {"spec": changes} if changes else None


def _field_patch(value: Any, current: Any) -> Any:
    if not isinstance(value, Mapping) or not isinstance(current, Mapping):
        return value
    changed = {name: item for name, item in value.items() if current.get(name) != item}
    return changed | dict.fromkeys(current.keys() - value.keys())
