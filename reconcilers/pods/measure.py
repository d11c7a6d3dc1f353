"""The requests of a job's pods as they were created, compared with the job's charge.

One rule: pure. An API server changes pods at creation: by defaults of a LimitRange, the overhead of a RuntimeClass, a
webhook. The created pod is measured, whatever its template says. The devices of resource claims are requests, too.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from crds import labels
from crds.resources import quantities
from crds.resources.amounts import NOTHING, Amounts, peak, subtract
from crds.torchjob import demand
from crds.torchjob.status import PodMeasurements, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from reconcilers.pods import restart_agent
from reconcilers.views import containers
from reconcilers.views.containers import Requests
from reconcilers.views.pod_view import PodView

ROOM = {"quota": "the quota of queue {}", "cohort": "the cohort of queue {}", "pool": "the pool, beside queue {},"}
MOST_NAMED = 4
"""The number of resources that a message names."""


@dataclass(frozen=True, slots=True)
class Excess:
    """The excess of the pods' requests over the job's charge."""

    measured: PodMeasurements
    """The measured requests of the job's pods, to be stored in its status."""
    charge: Amounts
    """The charge that the job needs for all of its pods."""
    more: Amounts
    """The difference to the current charge."""

    @property
    def uncountable(self) -> bool:
        """Whether no charge can hold these requests."""
        return len(self.charge) > demand.MOST_NAMES or any(amount > demand.LARGEST for amount in self.charge.values())

    def __str__(self) -> str:
        names = sorted(self.more)
        parts = [f"{name} {quantities.format_amount(name, self.more[name])}" for name in names[:MOST_NAMED]]
        parts += [f"{len(names) - MOST_NAMED} resources"] if len(names) > MOST_NAMED else []
        return f"as the API server created them, its pods request more than their templates: {', '.join(parts)} more"

    def describe_refusal(self, queue: str, by: Literal["quota", "cohort", "pool"]) -> str:
        """Return the message for a queue without room for this charge."""
        return f"{self}; {ROOM[by].format(queue)} has no room for that"


def find_excess(
    job: TorchJob, charged: Amounts, pods: Iterable[PodView], claimed: Mapping[str, Amounts] | None = None
) -> Excess | None:
    """Return the excess of the pods' requests over the charge, counting every pod of a task like its largest; None if
    the charge is sufficient. `claimed` has the devices of one pod by task type, which are counted for the first time.
    """
    to_be_made = {(name.lower(), tuple(sorted(devices.items()))) for name, devices in (claimed or {}).items()}
    excess = find_excess_of(job, charged, {(pod.task, pod.requests) for pod in pods} | to_be_made)
    if excess is None or claimed is None:
        return excess
    return replace(excess, measured=excess.measured.model_copy(update={"claims": True}))


def count_claims(job: TorchJob, claimed: Mapping[str, Amounts]) -> TorchJobStatus:
    """Return the status of a job with the devices of one pod by task type among its measurements."""
    names = {name for name, devices in claimed.items() if devices} | job.pod_measurements.keys()
    pods = {name: peak(claimed.get(name, NOTHING), job.pod_measurements.get(name, NOTHING)) for name in names}
    measured = PodMeasurements(templates=job.spec.digest, pods=_truncate(pods), claims=True)
    return job.status.model_copy(update={"measured": measured})


def find_excess_of(job: TorchJob, charged: Amounts, requests: Collection[tuple[str, Requests]]) -> Excess | None:
    """Return the excess of pods that exist or are to be made, by their requests; the tasks are in lower case."""
    larger = _largest_excess(job, requests)
    if not larger:
        return None
    measured = {name: peak(share, job.pod_measurements.get(name, NOTHING)) for name, share in larger.items()}
    combined = {**job.pod_measurements, **measured}
    charge = peak(charged, job.spec.charge_of(job.spec.worker_count, combined))
    more = {name: amount for name, amount in subtract(charge, charged).items() if amount > 0}
    counted = bool(job.spec.claims) and not job.uncounted_claims
    measurements = PodMeasurements(templates=job.spec.digest, pods=_truncate(combined), claims=counted)
    return Excess(measurements, charge, more) if more else None


def without_agents(status: TorchJobStatus) -> PodMeasurements | None:
    """Return the measurements of a job's pods without restart agents; unchanged if they include no agents."""
    measured, in_place = status.measured, status.in_place
    if measured is None or in_place is None or not in_place.charged:
        return measured
    agent = demand.read_resources(restart_agent.AMOUNTS)
    rest = {name: subtract(share, agent) for name, share in measured.pods.items()}
    pods = {name: {each: amount for each, amount in share.items() if amount > 0} for name, share in rest.items()}
    return measured.model_copy(update={"pods": pods})


def is_larger(pod: Manifest, manifest: Manifest) -> bool:
    """Return whether a created pod requests more than the share of the charge that its annotation states."""
    share: dict[str, int] = orjson.loads(manifest["metadata"]["annotations"][labels.CHARGE])
    return _exceeds(containers.read(pod["spec"]), share)


def _exceeds(requests: Requests, share: Amounts) -> bool:
    """Return whether a pod requests more than its share of any resource."""
    return any(amount > share.get(name, 0) for name, amount in requests)


def _largest_excess(job: TorchJob, requests: Collection[tuple[str, Requests]]) -> dict[str, Amounts]:
    """Return the largest requests of a pod by task type, where they exceed the pod's share."""
    types = {name.lower(): (name, share) for name, share in job.ungrown_shares.items()} if requests else {}
    excess: dict[str, Amounts] = {}
    for task, amounts in requests:
        name, share = types.get(task, ("", NOTHING))
        if name and _exceeds(amounts, share):
            excess[name] = peak(excess.get(name, NOTHING), dict(amounts))
    return excess


def _truncate(measured: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
    """Return the part that a status can hold; a job with more resources cannot be charged anyway."""
    return {name: dict(sorted(share.items())[: demand.MOST_NAMES]) for name, share in measured.items()}
