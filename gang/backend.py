"""What a gang scheduler has to be told, and what it says back.

One rule: pure, and the same few verbs for all of them. A group is deleted as any object is, so there is no verb for it.
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
        """As in spec.schedulingPolicy.gangScheduler."""

    @property
    def scheduler(self) -> str:
        """The schedulerName that its pods carry; empty if the template, or the cluster's default, says it."""

    @property
    def together(self) -> bool:
        """Whether it binds all pods of a stage at once, so that they are made at once."""

    @property
    def resource(self) -> Resource | None:
        """The kind of object that stands for a gang; None if the pods alone say what it is."""

    @property
    def queues(self) -> Resource | None:
        """The kind of its own queues; None if it has none."""

    def create(self, gang: Gang, /) -> Manifest | None:
        """The object that stands for a gang."""

    def resize(self, gang: Gang, group: GroupView, /) -> Mapping[str, Any] | None:
        """The merge patch that makes a group the size of a gang; None if it is, or cannot be changed."""

    def trim(self, manifest: Manifest, /) -> GroupView:
        """What matters of such an object that carries our labels."""

    def refusal(self, queue: str, found: Manifest | None, /) -> tuple[str, str] | None:
        """Why a group in a queue of the scheduler's own is not let in: reason and message; None if it may be."""

    def bind(self, gang: Gang, task_type: str, /) -> Binding:
        """What a pod of a task, named in lower case, carries to be bound with its gang."""


@dataclass(frozen=True, slots=True)
class Objectless:
    """What the schedulers have in common for which no object stands for a gang: the pods say it, or nobody does."""

    @property
    def resource(self) -> Resource | None:
        """There is no kind."""
        return None

    @property
    def queues(self) -> Resource | None:
        """There are no queues."""
        return None

    def create(self, _gang: Gang) -> Manifest | None:
        """Nothing is made."""
        return None

    def resize(self, _gang: Gang, _group: GroupView) -> Mapping[str, Any] | None:
        """Nothing is changed."""
        return None

    def trim(self, _manifest: Manifest) -> GroupView:
        """There are no groups to look at."""
        raise NotImplementedError("there is no object of this gang scheduler's that is ours")

    def refusal(self, _queue: str, _found: Manifest | None) -> tuple[str, str] | None:
        """Nothing is refused."""
        return None


def manifest(resource: Resource, gang: Gang, spec: Mapping[str, Any]) -> Manifest:
    """The object of a gang: owned by the job, so that it never outlives it."""
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
    """What is the same of all groups; `fields` are those of the spec that say how large it is."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    marks: Mapping[str, str] = metadata.get("labels") or {}
    version = metadata.get("resourceVersion", "")
    return GroupView(
        resource=resource,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=owners.job_uid(metadata),
        attempt=_number(marks.get(labels.ATTEMPT, "")),
        spec={name: _canonical(name, spec[name]) for name in fields if name in spec},
        deleting="deletionTimestamp" in metadata,
        version=max(_number(version), 0),
        **more,
    )


def _canonical(field: str, value: Any) -> Any:
    """Amounts in one notation: whoever writes them in another says the same."""
    if field != "minResources" or not isinstance(value, Mapping):
        return value
    return {name: _amount(name, quantity) for name, quantity in value.items()}


def _amount(name: str, quantity: Any) -> Any:
    try:
        return quantities.text(name, quantities.parse(name, quantity))
    except ValueError:
        return quantity


def _number(text: str) -> int:
    """A label is not ours to trust: -1 matches nothing."""
    return integers.bounded(text, -1)


def difference(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any] | None:
    """The merge patch of a spec from what is there to what is wanted; a name within a map that is not wanted goes."""
    found = {name: _change(value, there.get(name)) for name, value in wanted.items() if there.get(name) != value}
    return {"spec": found} if found else None


def _change(value: Any, there: Any) -> Any:
    if not isinstance(value, Mapping) or not isinstance(there, Mapping):
        return value
    changed = {name: each for name, each in value.items() if there.get(name) != each}
    return changed | dict.fromkeys(there.keys() - value.keys())
