"""What a job's pods ask for as they were made, against what the job is charged.

One rule: pure. An API server adds to pods after us: defaults of a LimitRange, the overhead of a RuntimeClass, what a
webhook adds. The pod that was made counts, whatever its template says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import orjson

from crds import labels
from crds.resources import quantities
from crds.resources.amounts import NOTHING, Amounts, peak, subtract
from crds.torchjob import demand
from crds.torchjob.status import Measured
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from reconcilers.views import pod_view
from reconcilers.views.pod_view import Asked, PodView

ROOM = {"quota": "the quota of queue {}", "cohort": "the cohort of queue {}", "pool": "the pool, beside queue {},"}
MOST_NAMED = 4
"""Resources that a sentence names."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A job's pods ask for more than it is charged."""

    measured: Measured
    """What is to be remembered of its pods."""
    charge: Amounts
    """What the job has to be charged for all of its pods."""
    more: Amounts
    """By how much that is more."""

    @property
    def uncountable(self) -> bool:
        """Whether no charge can hold it."""
        return len(self.charge) > demand.MOST_NAMES or any(each > demand.LARGEST for each in self.charge.values())

    def __str__(self) -> str:
        names = sorted(self.more)
        told = [f"{name} {quantities.text(name, self.more[name])}" for name in names[:MOST_NAMED]]
        told += [f"{len(names) - MOST_NAMED} resources"] if len(names) > MOST_NAMED else []
        return f"as the API server made them, its pods ask for more than their templates: {', '.join(told)} more"

    def refused(self, queue: str, by: Literal["quota", "cohort", "pool"]) -> str:
        """What to tell where there is no room for it."""
        return f"{self}; {ROOM[by].format(queue)} has no room for that"


def of(job: TorchJob, charged: Amounts, pods: Iterable[PodView]) -> Excess | None:
    """How much more than what is charged the pods ask for, as if all pods of a task asked for as much as the largest;
    None if it is enough."""
    larger = _larger(job, pods)
    if not larger:
        return None
    measured = {name: peak(share, job.measured.get(name, NOTHING)) for name, share in larger.items()}
    known = {**job.measured, **measured}
    charge = peak(charged, demand.job_charge(job.spec, known))
    more = {name: amount for name, amount in subtract(charge, charged).items() if amount > 0}
    return Excess(Measured(templates=job.spec.digest, pods=_kept(known)), charge, more) if more else None


def is_larger(made: Manifest, manifest: Manifest) -> bool:
    """Whether a pod as the API server made it asks for more than the share of the charge that we wrote on it."""
    share: dict[str, int] = orjson.loads(manifest["metadata"]["annotations"][labels.CHARGE])
    return _exceeds(pod_view.asks(made["spec"]), share)


def _exceeds(asked: Asked, share: Amounts) -> bool:
    """Whether a pod asks for more than its share, of any resource."""
    return any(amount > share.get(name, 0) for name, amount in asked)


def _larger(job: TorchJob, pods: Iterable[PodView]) -> dict[str, Amounts]:
    """By task type, the most that a pod asks for where that is more than its share."""
    asked = {(pod.task, pod.asks) for pod in pods}
    types = {name.lower(): (name, share) for name, share in job.shares.items()} if asked else {}
    found: dict[str, Amounts] = {}
    for task, amounts in asked:
        name, share = types.get(task, ("", NOTHING))
        if name and _exceeds(amounts, share):
            found[name] = peak(found.get(name, NOTHING), dict(amounts))
    return found


def _kept(known: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
    """As much of it as a status can hold: what holds more is too much to be charged for anyway."""
    return {name: dict(sorted(share.items())[: demand.MOST_NAMES]) for name, share in known.items()}
