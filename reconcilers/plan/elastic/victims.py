"""The choice of the workers that a job loses, by number or by name.

One rule: pure. Some workers are never removed: the workers of a critical task, and the rank 0 of a static world, to
which all other ranks connect. Masters, the rendezvous store and all other tasks have no victims.

    first    workers without a pod
    then     workers that do not run yet
    then     workers that failed
    then     workers on a node that is leaving: dead, closed for new pods, or about to evict them
    then     spot workers
    then     running workers
    last     workers that have succeeded

Of equal workers, the one with the highest index goes first.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from crds.torchjob.worker_range import WorkerRange
from reconcilers.pods.task_members import PodMember
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers that a job has been granted, without those that are being removed."""

    job: TorchJob
    """The job as it was granted."""
    members: Mapping[str, PodMember]
    pods: Mapping[str, PodView]
    """The existing pods of the members, by name."""
    leaving_nodes: frozenset[str] = frozenset()

    def choose(self, count: int) -> tuple[str, ...]:
        """Return the names of the workers to remove; fewer than `count` if the other workers have to stay."""
        removable = [member for member in self.members.values() if not self._protection(member)]
        return tuple(member.name for member in sorted(removable, key=self._order)[: max(count, 0)])

    def choose_late(
        self, missing: Collection[str], added: int, scope: WorkerRange | None, together: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Return the workers to give up because they do not run, and the further workers that bring the job to one of
        its sizes.

        At most the number of added workers is given up: a worker that is being replaced at the time is not given up.
        `together` are the workers that were added all or none; all of these workers are given up.
        """
        granted = sum(member.task_type == WORKER for member in self.members.values())
        order = sorted(self.choose(granted), key=lambda name: name not in missing)
        late = min(sum(name in missing for name in order), added)
        if together is not None:
            order, late = sorted(order, key=lambda name: name not in together), added
        elif scope is not None:
            late = min(added, late + (granted - late - scope.least) % scope.step)
        return tuple(order[:late])

    def refusal(self, names: Sequence[str]) -> str:
        """Return why exactly these pods cannot be removed, however many workers the job keeps; empty if they can."""
        if not names:
            return "no pods are named"
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            return f"pods are named twice: {pod_view.list_names(twice)}"
        unknown = [name for name in names if name not in self.members]
        if unknown:
            return f"the job has no such pods: {pod_view.list_names(unknown)}"
        for name in names:
            if why := self._protection(self.members[name]):
                return f"pod {name} cannot be removed: {why}"
        return ""

    def _protection(self, member: PodMember) -> str:
        """Return why a pod is never removed; empty if it may be."""
        if member.task_type != WORKER:
            return f"it belongs to the task {member.task_type}; only workers can be removed"
        if self.job.spec.tasks[WORKER].critical:
            return "the task Worker is critical"
        if member.name == member.lead and not self.job.spec.rendezvous:
            return "the other pods connect to it"
        return ""

    def _order(self, member: PodMember) -> tuple[int, int]:
        return self._rank(member, self.pods.get(member.name)), -member.index

    def _rank(self, member: PodMember, pod: PodView | None) -> int:
        """Return the place of a worker in the order of the table above, from 0."""
        if pod is None:
            return 0
        if pod.phase == "Pending" or not (pod.running or pod.finished or pod.deleting):
            return 1
        if pod.phase == "Failed":
            return 2
        if pod.phase == "Succeeded":
            return 6
        if pod.deleting or pod.disruption or pod.node in self.leaving_nodes:
            return 3
        return 4 if member.spot else 5
