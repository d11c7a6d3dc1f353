"""The TorchJob: a user's request for training, and its status.

One rule: only `parse` creates a TorchJob from a manifest, so every TorchJob is valid.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from crds import labels, problems, timestamps
from crds.api_resources import TORCHJOBS
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.metadata import Metadata, NamedMetadata
from crds.model import StrictModel
from crds.resources.amounts import NOTHING, PODS, Amounts, peak
from crds.torchjob import checks, conditions, demand, memory_growth, size_limits, submission_order
from crds.torchjob.demand import FirstPods
from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.status import Admission, Hang, Target, TorchJobStatus

CLOCK_SKEW = 60.0
"""Maximum number of seconds by which the clock of a user's machine may be ahead."""
DNS_1035 = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class JobName(NamedMetadata):
    """The rules for a job's name, with which the names of its services and pods begin."""

    name: str = Field(max_length=40, pattern=DNS_1035)


class TorchJob(StrictModel):
    """A distributed PyTorch job."""

    api_version: Literal["train.distributed.io/v1alpha1"] = "train.distributed.io/v1alpha1"
    kind: Literal["TorchJob"] = "TorchJob"
    metadata: Metadata
    spec: TorchJobSpec
    status: TorchJobStatus = Field(default_factory=TorchJobStatus)

    @cached_property
    def key(self) -> JobKey:
        """The key by which processes refer to the job."""
        return JobKey(self.metadata.namespace, self.metadata.name, self.metadata.uid)

    @property
    def queue(self) -> str:
        """The name of the job's tenant queue."""
        return self.spec.scheduling_policy.queue or self.metadata.namespace

    @property
    def submission_time(self) -> float:
        """The creation time of the job in seconds since the epoch; 0 for a manifest that was not submitted."""
        created = self.metadata.creation_timestamp
        return created.timestamp() if created else 0.0

    @property
    def sequence(self) -> str:
        """The job's place among the jobs that were created in the same second (`crds.torchjob.submission_order`);
        empty if unknown."""
        return submission_order.read(self.metadata.annotations.get(labels.SUBMITTED))

    @property
    def target(self) -> Target | None:
        """The number of workers that the coordinator has decided on; None if there is no target, or if the target is
        void.

        A target is void after the owner has lowered the number of workers, and outside of the bounds of the policy.
        Read this property of a job as it is stored, not `as_granted`.
        """
        target, policy = self.status.target, self.spec.torch_elastic_policy
        if target is None or policy is None or self.spec.worker_count < target.wish:
            return None
        most = policy.num_max_replicas or self.spec.worker_count
        return target if self.spec.least_workers <= target.workers <= max(most, self.spec.worker_count) else None

    @property
    def wanted_workers(self) -> int:
        """The number of workers that the job is to have: the number of its target, else the number that its owner
        wants.
        """
        target = self.target
        return self.spec.worker_count if target is None else target.workers

    @property
    def save_request(self) -> int:
        """The number of the request to save before workers are removed or restarted; 0 if there is no request.

        The status does not tell whether the workers have saved; the removal or the restart begins once the workers have
        saved.
        """
        saving = self.status.saving
        if saving is not None and self.spec.scheduling_policy.checkpoint_seconds:
            return int(saving.since.timestamp())
        scaling, granted = self.status.scaling, self.admission.workers if self.admission is not None else None
        if scaling is None or scaling.victims or granted is None or not self.spec.scheduling_policy.checkpoint_seconds:
            return 0
        return int(scaling.since.timestamp()) if max(scaling.to, self.wanted_workers) < granted else 0

    @property
    def hang(self) -> Hang | None:
        """The finding that the job hangs; None if there is no finding, or if the finding is void.

        A finding is void in another run of the job, while the job does not run, and once its health is not watched.
        """
        hang, is_watched = self.status.hang, self.spec.health.hang_timeout_seconds > 0
        is_current = hang is not None and self.status.phase == "Running" and hang.run == self.status.run
        return hang if is_watched and is_current else None

    @property
    def pod_measurements(self) -> Mapping[str, Amounts]:
        """For each task type, the measured requests of one pod where they exceed its template.

        There are no measurements after a template has changed.
        """
        measured = self.status.measured
        return measured.pods if measured is not None and measured.templates == self.spec.digest else demand.NO_TASKS

    @property
    def uncounted_claims(self) -> str:
        """The path of the first field with resource claims whose devices no worker has counted; empty if there is
        none."""
        measured = self.status.measured
        is_counted = measured is not None and measured.claims and measured.templates == self.spec.digest
        return "" if is_counted else self.spec.claims

    @property
    def grown_memory(self) -> Mapping[str, Amounts]:
        """For each task type whose memory has grown, the memory that one of its next pods requests."""
        raised = self.status.memory
        return memory_growth.requests_of_next(self.spec.torch_task_specs, raised) if raised else demand.NO_TASKS

    @property
    def larger_requests(self) -> Mapping[str, Amounts]:
        """For each task type, what one pod requests beyond its template: measured additions, and memory that has
        grown."""
        measured, grown = self.pod_measurements, self.grown_memory
        if not grown:
            return measured
        return {name: peak(measured.get(name, NOTHING), grown.get(name, NOTHING)) for name in {*measured, *grown}}

    @property
    def shares(self) -> Mapping[str, Amounts]:
        """For each task type, one pod's share of the charge."""
        return self._shares(self.larger_requests)

    @property
    def ungrown_shares(self) -> Mapping[str, Amounts]:
        """The shares of the pods that have the memory of their templates."""
        return self._shares(self.pod_measurements)

    def _shares(self, larger: Mapping[str, Amounts]) -> Mapping[str, Amounts]:
        tasks = self.spec.torch_task_specs.items()
        return {name: peak(demand.pod_charge(task), larger.get(name, NOTHING)) for name, task in tasks}

    @property
    def charge(self) -> Amounts:
        """The amounts that the admitted job takes from its queue's quota and the pool with all workers that it
        requests.
        """
        return self.charge_of(self.spec.worker_count) if self.larger_requests else self.spec.charge

    @property
    def least_charge(self) -> Amounts:
        """The charge with the least number of workers with which the job can be admitted."""
        return self.charge_of(self.spec.least_workers) if self.larger_requests else self.spec.least_charge

    @property
    def worker_share(self) -> Amounts:
        """The amounts that one further worker adds to the charge; nothing for a job without workers."""
        larger = self.larger_requests
        return _cap(demand.worker_share(self.spec, larger)) if larger else self.spec.worker_share

    @property
    def first_pods(self) -> tuple[FirstPods, ...]:
        """The pods that start together with the least number of workers."""
        domain = self.admission.domain if self.admission is not None else ""
        if not (self.larger_requests or self.status.excluded_nodes or domain):
            return self.spec.first_pods
        avoided = self.status.excluded_nodes
        return demand.stage_pods(self.spec, self.spec.stages[0], self.shares, avoided, domain)

    def charge_of(self, workers: int) -> Amounts:
        """Return the charge with a number of workers (`demand.charge_of`)."""
        return _cap(self.spec.charge_of(workers, self.larger_requests))

    @property
    def admission(self) -> Admission | None:
        """The capacity that the job holds.

        Older versions did not store the number of pods; then the number that the job requests now is used.
        """
        written = self.status.admission
        if written is None or PODS in written.charge:
            return written
        return written.model_copy(update={"charge": {**written.charge, PODS: self.spec.charge[PODS]}})

    @property
    def is_finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.status.is_finished

    @property
    def is_cancelled(self) -> bool:
        """Whether the job ended because its owner has cancelled it."""
        condition = conditions.find(self.status.conditions, "Failed") if self.status.phase == "Failed" else None
        return condition is not None and condition.reason == conditions.CANCELLED

    @property
    def retry_at(self) -> datetime | None:
        """The time of a user's request to retry the job since it was sent back to its queue; None without a request.

        The request takes effect once that time has come (`is_retry_due`). A time in the future would count for every
        later retry.
        """
        since = self.status.queue.since if self.status.queue else None
        try:
            retry_at = timestamps.parse(self.metadata.annotations.get(labels.RETRY_AT, ""))
        except ValueError:
            return None
        return retry_at if since is not None and retry_at.tzinfo is not None and retry_at > since else None

    def is_retry_due(self, now: datetime) -> bool:
        """Return whether a user has requested a retry since the job was sent back, so that its back-off ends."""
        retry_at = self.retry_at
        return retry_at is not None and (retry_at - now).total_seconds() <= CLOCK_SKEW

    @property
    def is_deleting(self) -> bool:
        """Whether the job is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def owner(self) -> dict[str, Any]:
        """The owner reference of the job's objects, so that the API server deletes them together with the job."""
        reference = TORCHJOBS.reference(self.metadata.name, self.metadata.uid)
        return {**reference, "controller": True, "blockOwnerDeletion": True}

    def pod_name(self, task_type: str, index: int) -> str:
        """Return the name of one of the job's pods."""
        return checks.pod_name(self.metadata.name, task_type, index)


def _cap(amounts: Amounts) -> Amounts:
    """Return amounts that can be stored exactly; measured amounts may be larger."""
    return {name: min(amount, demand.LARGEST) for name, amount in amounts.items()}


def parse_submitted(manifest: Any) -> TorchJob:
    """Return a manifest that is submitted as a TorchJob.

    Raise InvalidObject with every problem, also with those that a stored job may have.
    """
    job = parse(manifest)
    found = tuple(checks.check_submitted(job.spec))
    if found:
        raise InvalidObject(found)
    return job


def parse(manifest: Any) -> TorchJob:
    """Return a manifest as a TorchJob with defaults. Raise InvalidObject with every problem."""
    large = size_limits.problem(manifest)
    if large is not None:
        raise InvalidObject((large,))
    job = problems.validate(TorchJob, manifest)
    name_problems = problems.find(JobName, {"name": job.metadata.name}, "metadata")
    job_problems = problems.unique([*name_problems, *checks.check(job.metadata, job.spec)])
    job_problems = job_problems or tuple(demand.charge_problems(job.spec))
    if job_problems:
        raise InvalidObject(job_problems)
    return job
