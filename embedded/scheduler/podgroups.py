"""Volcano's PodGroups and Queues as the embedded scheduler sees them.

One rule: pure. An object is parsed once, when it comes from the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crds import integers
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from embedded.pod import INVALID_SPEC_ERRORS
from embedded.volcano_crds import DEFAULT_QUEUE, OPEN
from kube.api import Manifest


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One PodGroup: pods of which a minimum is bound all at once or not at all."""

    namespace: str
    name: str
    uid: str = ""
    version: int = 0
    """The resourceVersion."""
    minimum: int = 0
    """The number of pods of the PodGroup that must run for any to run."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """The number of pods of each task that must run for any to run."""
    resources: Amounts = field(default_factory=dict)
    """The resources that the minimum needs, as `spec.minResources` states."""
    queue: str = DEFAULT_QUEUE
    status: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Which part of the PodGroup cannot be read, and why; empty if all of it can."""

    @property
    def key(self) -> tuple[str, str]:
        """The namespace and the name."""
        return self.namespace, self.name

    @property
    def task_minimums(self) -> Mapping[str, int]:
        """The minimum of each task. Volcano ignores them if their sum is larger than the group's minimum."""
        return self.tasks if self.minimum >= sum(self.tasks.values()) else {}


@dataclass(frozen=True, slots=True)
class Gangs:
    """All PodGroups and Queues."""

    groups: Mapping[tuple[str, str], PodGroup] = field(default_factory=dict)
    queues: Mapping[str, bool] = field(default_factory=dict)
    """The name of each queue, and whether its PodGroups may begin."""


NO_GANGS = Gangs()


def read(manifest: Manifest) -> PodGroup:
    """Return the PodGroup of a manifest. Raise LookupError if the PodGroup has no name."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    resources, problem = _resources(spec)
    return PodGroup(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=integers.parse(metadata.get("resourceVersion"), 0),
        minimum=spec.get("minMember") or 0,
        tasks=spec.get("minTaskMember") or {},
        resources=resources,
        queue=spec.get("queue") or DEFAULT_QUEUE,
        status=manifest.get("status") or {},
        problem=problem,
    )


def is_open(queue: Manifest) -> bool:
    """Return whether PodGroups in a queue may begin. A queue whose status has no state is open."""
    return ((queue.get("status") or {}).get("state") or OPEN) == OPEN


def _resources(spec: Mapping[str, Any]) -> tuple[Amounts, str]:
    try:
        return demand.read_resources(spec.get("minResources")), ""
    except INVALID_SPEC_ERRORS as error:
        return {}, f"spec.minResources cannot be read: {error}"
