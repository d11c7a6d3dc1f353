"""Volcano's PodGroups and Queues as the embedded scheduler sees them.

One rule: pure; parsed once, when they come from the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crds import integers
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from embedded.pod import NONSENSE
from embedded.volcano_crds import DEFAULT_QUEUE, OPEN
from kube.api import Manifest


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One PodGroup: pods of which a minimum is bound all at once or not at all."""

    namespace: str
    name: str
    uid: str = ""
    version: int = 0
    """Its resourceVersion."""
    minimum: int = 0
    """How many of its pods must run for any to run."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """The same by task."""
    resources: Amounts = field(default_factory=dict)
    """What the minimum is said to need."""
    queue: str = DEFAULT_QUEUE
    status: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    """What of it cannot be read; empty if all is well."""

    @property
    def key(self) -> tuple[str, str]:
        """Where it is: namespace and name."""
        return self.namespace, self.name

    @property
    def task_minimums(self) -> Mapping[str, int]:
        """The minimums by task, as far as they count: Volcano passes over them where they come to more than all."""
        return self.tasks if self.minimum >= sum(self.tasks.values()) else {}


@dataclass(frozen=True, slots=True)
class Gangs:
    """All that is known of gangs."""

    groups: Mapping[tuple[str, str], PodGroup] = field(default_factory=dict)
    queues: Mapping[str, bool] = field(default_factory=dict)
    """Each queue, and whether pod groups in it may begin."""


NO_GANGS = Gangs()


def read(manifest: Manifest) -> PodGroup:
    """A PodGroup from its manifest. LookupError if it has no name."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    resources, problem = _resources(spec)
    return PodGroup(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=integers.bounded(metadata.get("resourceVersion"), 0),
        minimum=spec.get("minMember") or 0,
        tasks=spec.get("minTaskMember") or {},
        resources=resources,
        queue=spec.get("queue") or DEFAULT_QUEUE,
        status=manifest.get("status") or {},
        problem=problem,
    )


def is_open(queue: Manifest) -> bool:
    """Whether pod groups in a queue may begin. One of which nobody has said anything is open."""
    return ((queue.get("status") or {}).get("state") or OPEN) == OPEN


def _resources(spec: Mapping[str, Any]) -> tuple[Amounts, str]:
    try:
        return demand.amounts(spec.get("minResources")), ""
    except NONSENSE as error:
        return {}, f"spec.minResources cannot be read: {error}"
