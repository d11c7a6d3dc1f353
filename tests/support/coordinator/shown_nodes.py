"""What the watches show of nodes, pods and jobs, as a test plays them."""

from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.cache.node_changes import NodeChanges, node_index
from coordinator.cache.node_views import NodeView
from coordinator.cache.views import JobView, PodView
from crds.keys import JobKey
from tests.support.coordinator.builders import node


@dataclass
class Shown:
    """What the watches show."""

    nodes: "Nodes"
    pods: "Pods"
    jobs: dict[JobKey, JobView] = field(default_factory=dict)
    node_changes: NodeChanges = field(default_factory=NodeChanges)

    @property
    def holders(self) -> dict[JobKey, JobView]:
        return {key: job for key, job in self.jobs.items() if job.admission is not None}

    def job(self, key: JobKey) -> JobView | None:
        return self.jobs.get(key)

    def job_pods(self, key: JobKey) -> list[PodView]:
        return [each for each in self.pods.values() if each.job == key]

    def set_node(self, name: str, **changes: Any) -> None:
        before = self.nodes.get("", name)
        self.nodes.found[name] = replace(before or node(name=name), **changes)
        self.node_changes.note_node(before, self.nodes.found[name])

    def set_job(self, **changes: Any) -> None:
        """Change the only job."""
        ((key, before),) = self.jobs.items()
        self.jobs[key] = replace(before, **changes)
        self.node_changes.note(before, self.jobs[key])

    def add_pod(self, view: PodView) -> None:
        self.pods.found.append(view)
        self.node_changes.note_pod(None, view)

    def end_pod(self, view: PodView) -> None:
        self.pods.found.remove(view)
        self.node_changes.note_pod(view, None)


@dataclass
class Nodes:
    found: dict[str, NodeView] = field(default_factory=dict)

    def get(self, _: str, name: str) -> NodeView | None:
        return self.found.get(name)

    def values(self) -> list[NodeView]:
        return [*self.found.values()]


@dataclass
class Pods:
    found: list[PodView] = field(default_factory=list)

    def values(self) -> list[PodView]:
        return self.found

    def indexed(self, key: str) -> list[PodView]:
        return [each for each in self.found if node_index(each) == key]
