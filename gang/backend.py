"""The interface to a gang scheduler: the values that it needs, and the values that it reports.

One rule: pure, and the same few verbs for all schedulers. A group is deleted like any object, so there is no verb for
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from crds import integers, labels, owners
from crds.api_resources import Resource
from crds.resources import quantities
from gang.values import Binding, Gang, GroupView
from kube.api import Manifest


class Backend(Protocol):
    """One scheduler that binds pods all or none."""

    @property
    def name(self) -> str:
        """The name in spec.schedulingPolicy.gangScheduler."""

    @property
    def scheduler(self) -> str:
        """The schedulerName of the gang's pods; empty if the template or the cluster's default decides."""

    @property
    def together(self) -> bool:
        """Whether the scheduler binds all pods of a stage together, so that they are created together."""

    @property
    def resource(self) -> Resource | None:
        """The kind of object that stands for a gang; None if the pods alone describe it."""

    @property
    def queues(self) -> Resource | None:
        """The kind of the scheduler's own queues; None if it has none."""

    def create(self, gang: Gang, /) -> Manifest | None:
        """Return the object that stands for a gang; None if there is none."""

    def resize(self, gang: Gang, group: GroupView, /) -> Mapping[str, Any] | None:
        """Return the merge patch that gives a group the size of a gang; None if it has that size, or cannot be
        changed."""

    def trim(self, manifest: Manifest, /) -> GroupView:
        """Return the view of a group that carries torchq's labels."""

    def refusal(self, queue: str, manifest: Manifest | None, /) -> tuple[str, str] | None:
        """Return the reason and the message why a group in a queue of the scheduler is not let in; None if it may
        be."""

    def bind(self, gang: Gang, task_type: str, /) -> Binding:
        """Return the binding of a pod: what it carries to be bound with its gang. The name of its task is in lower
        case."""


@dataclass(frozen=True, slots=True)
class Objectless:
    """The common part of schedulers without an object for a gang: the pods alone describe it."""

    @property
    def resource(self) -> Resource | None:
        """The kind of object: none."""
        return None

    @property
    def queues(self) -> Resource | None:
        """The kind of queue: none."""
        return None

    def create(self, _gang: Gang) -> Manifest | None:
        """Return no object."""
        return None

    def resize(self, _gang: Gang, _group: GroupView) -> Mapping[str, Any] | None:
        """Return no change."""
        return None

    def trim(self, _manifest: Manifest) -> GroupView:
        """Raise NotImplementedError, because there are no groups."""
        raise NotImplementedError("this gang scheduler has no object for a gang")

    def refusal(self, _queue: str, _manifest: Manifest | None) -> tuple[str, str] | None:
        """Return no refusal."""
        return None


def manifest(resource: Resource, gang: Gang, spec: Mapping[str, Any]) -> Manifest:
    """Return the object of a gang, owned by the job so that it is deleted with it."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": gang.name,
            "namespace": gang.namespace,
            "labels": dict(gang.labels),
            "ownerReferences": [dict(gang.owner)],
        },
        "spec": dict(spec),
    }


def view(resource: Resource, manifest: Manifest, fields: tuple[str, ...], **more: Any) -> GroupView:
    """Return the view of a group with the fields that all schedulers share. `fields` are the fields of the spec that
    define its size."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    group_labels: Mapping[str, str] = metadata.get("labels") or {}
    version = metadata.get("resourceVersion", "")
    return GroupView(
        resource=resource,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=owners.job_uid(metadata),
        attempt=_number(group_labels.get(labels.ATTEMPT, "")),
        spec={name: _canonical(name, spec[name]) for name in fields if name in spec},
        deleting="deletionTimestamp" in metadata,
        version=max(_number(version), 0),
        **more,
    )


def _canonical(field: str, value: Any) -> Any:
    """Return the value with amounts in one notation, because the same amount can be written in several."""
    if field != "minResources" or not isinstance(value, Mapping):
        return value
    return {name: _amount(name, quantity) for name, quantity in value.items()}


def _amount(name: str, quantity: Any) -> Any:
    try:
        return quantities.format_amount(name, quantities.parse(name, quantity))
    except ValueError:
        return quantity


def _number(text: str) -> int:
    """Return the number in a label; -1, which matches nothing, if a user has made it invalid."""
    return integers.parse(text, -1)


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
