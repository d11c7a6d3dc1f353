"""The job as its admission grants it, and the pods that belong to the grant.

One rule: pure. Everything that counts pods reads the granted job. Only `reconcilers.plan.elastic.change` reads how many
workers the owner requests.

The workers that are being removed (`status.scaling.victims`) are no longer part of the grant, although the job is
charged for them until their pods no longer exist. Failures of these pods are not counted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice

from crds.resources.amounts import Amounts, add, subtract
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
        """The indexes of the workers that the admission names, including workers that are being removed."""
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
    def world(self) -> tuple[int, ...]:
        """The indexes of those workers that train together; added workers may still wait to join them."""
        scaling = self.wanted.status.scaling
        if scaling is None or scaling.world is None or not self.wanted.spec.has_static_worlds:
            return self.staying
        together = frozenset(grant.parse_indexes(scaling.world))
        return tuple(index for index in self.staying if index in together)

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
        joining = frozenset(self.staying) - frozenset(self.world)
        return task_members.members(self.job, self.admission.attempt, self.staying, world, joining)

    def own_pods(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """Return the pods of this admission, without workers that it does not grant or that are being removed."""
        return tuple(
            self.members[pod.name].show(pod)
            for pod in pods
            if pod.attempt == self.admission.attempt and pod.name in self.members
        )


def add_indexes(admission: Admission, granted: int, to: int) -> list[int]:
    """Return the granted indexes and the lowest free indexes, `to` indexes in total."""
    taken = frozenset(grant.indexes(admission, granted))
    free = (index for index in count() if index not in taken)
    return sorted({*taken, *islice(free, to - len(taken))})


def grown_charge(job: TorchJob, admission: Admission, to: int, held: Amounts) -> dict[str, int]:
    """Return the charge after a growth of which only a part is still wanted."""
    more = subtract(job.charge_of(to), job.charge_of(admission.workers or 0))
    return {name: min(amount, held.get(name, 0)) for name, amount in add(admission.charge, more).items()}


def charge_left(job: TorchJob, admission: Admission, left: int, revoked: Amounts | None) -> dict[str, int]:
    """Return the charge of the workers that are left: at most the present charge, and at most the reserved charge if
    room was revoked.
    """
    limits = [job.charge_of(left), *([] if revoked is None else [revoked])]
    return {name: min(amount, *(limit.get(name, 0) for limit in limits)) for name, amount in admission.charge.items()}
