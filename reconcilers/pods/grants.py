"""The job as its admission grants it, and the pods that belong to the grant.

One rule: pure. Everything that counts pods reads the granted job. Only `reconcilers.plan.scaling` reads how many
workers the owner requests.

The workers that are being removed (`status.scaling.victims`) are no longer part of the grant, although the job is
charged for them until their pods no longer exist. No failure of theirs counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from crds.torchjob import grant
from crds.torchjob.status import Admission
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import task_members
from reconcilers.pods.task_members import PodMember
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True)
class Grant:
    """A job under an admission, which may not be written yet."""

    wanted: TorchJob
    """The job with the number of workers that its owner requests."""
    admission: Admission

    @cached_property
    def indexes(self) -> tuple[int, ...]:
        """The indexes of the workers that the admission names, those that are being removed included."""
        return grant.indexes(self.admission, self.wanted.spec.worker_count)

    @cached_property
    def victims(self) -> frozenset[str]:
        """The names of the pods that are being removed."""
        scaling, written = self.wanted.status.scaling, self.wanted.status.admission
        is_current = scaling is not None and written is not None and written.attempt == self.admission.attempt
        return frozenset(scaling.victims) if scaling is not None and is_current else frozenset()

    @cached_property
    def staying(self) -> tuple[int, ...]:
        """The indexes of the granted workers that are not being removed."""
        if not self.victims:
            return self.indexes
        return tuple(index for index in self.indexes if self.wanted.pod_name(WORKER, index) not in self.victims)

    @cached_property
    def job(self) -> TorchJob:
        """The job with the workers that it keeps."""
        if self.admission.workers is None:
            return grant.as_granted(self.wanted, self.admission)
        return grant.as_granted(self.wanted, self.admission.model_copy(update={"workers": len(self.staying)}))

    @cached_property
    def members(self) -> Mapping[str, PodMember]:
        """All pods of the granted job, by name. A job that is not elastic keeps the ranks and the world size of all
        workers that it requests."""
        if self.admission.workers is None:
            return task_members.members(self.job, self.admission.attempt)
        spec = self.wanted.spec
        world = None if spec.is_elastic else spec.worker_count
        return task_members.members(self.job, self.admission.attempt, self.staying, world)

    def own_pods(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """Return the pods of this admission, without workers that it does not grant or that are being removed."""
        return tuple(
            self.members[pod.name].show(pod)
            for pod in pods
            if pod.attempt == self.admission.attempt and pod.name in self.members
        )
