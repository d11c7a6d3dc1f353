"""The TorchJob: a user's request and what became of it.

One rule: `parse` is the only way in; whoever holds a TorchJob holds a valid one.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, ValidationError

from crds import labels, problems, timestamps
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.metadata import Metadata, Named
from crds.model import Written
from crds.resources.amounts import NOTHING, PODS, Amounts, peak
from crds.torchjob import checks, demand, size_limits, submission_order
from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.status import Admission, TorchJobStatus

CLOCK_SKEW = 60.0
"""Seconds by which the clock of a user's machine may be ahead."""
DNS_1035 = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class JobName(Named):
    """A job's name begins those of its services and pods."""

    name: str = Field(max_length=40, pattern=DNS_1035)


class TorchJob(Written):
    """A distributed PyTorch job."""

    api_version: Literal["train.distributed.io/v1alpha1"] = "train.distributed.io/v1alpha1"
    kind: Literal["TorchJob"] = "TorchJob"
    metadata: Metadata
    spec: TorchJobSpec
    status: TorchJobStatus = Field(default_factory=TorchJobStatus)

    @cached_property
    def key(self) -> JobKey:
        """The name it travels under."""
        return JobKey(self.metadata.namespace, self.metadata.name, self.metadata.uid)

    @property
    def queue(self) -> str:
        """The tenant queue it waits in."""
        return self.spec.scheduling_policy.queue or self.metadata.namespace

    @property
    def submitted(self) -> float:
        """When it was created, in seconds since the epoch; 0 before it was."""
        created = self.metadata.creation_timestamp
        return created.timestamp() if created else 0.0

    @property
    def sequence(self) -> str:
        """Its place among the jobs that were created in the same second (`crds.torchjob.submission_order`); empty if
        it has none."""
        return submission_order.read(self.metadata.annotations.get(labels.SUBMITTED))

    @property
    def measured(self) -> Mapping[str, Amounts]:
        """By task type, what one of its pods was seen to ask for where that was more than its template says; nothing
        once a template has changed."""
        found = self.status.measured
        return found.pods if found is not None and found.templates == self.spec.digest else demand.NO_TASKS

    @property
    def shares(self) -> Mapping[str, Amounts]:
        """By task type, what one pod takes of the charge."""
        measured, tasks = self.measured, self.spec.torch_task_specs.items()
        return {name: peak(demand.pod_charge(task), measured.get(name, NOTHING)) for name, task in tasks}

    @property
    def charge(self) -> Amounts:
        """What it takes from its queue's quota and the pool while admitted (`demand.job_charge`)."""
        measured = self.measured
        if not measured:
            return self.spec.charge
        return {name: min(amount, demand.LARGEST) for name, amount in demand.job_charge(self.spec, measured).items()}

    @property
    def admission(self) -> Admission | None:
        """The room it holds. Versions that did not count pods wrote none: its pods count as many as it asks for now."""
        written = self.status.admission
        if written is None or PODS in written.charge:
            return written
        return written.model_copy(update={"charge": {**written.charge, PODS: self.spec.charge[PODS]}})

    @property
    def finished(self) -> bool:
        """Whether it has reached its end."""
        return self.status.finished

    @property
    def retry_at(self) -> datetime | None:
        """When another try was asked for since it was sent back; None if it was not. It counts once that time has come
        (`retried`): a time in the future would ask for every try to come."""
        since = self.status.queue.since if self.status.queue else None
        try:
            asked = timestamps.parse(self.metadata.annotations.get(labels.RETRY_AT, ""))
        except ValueError:
            return None
        return asked if since is not None and asked.tzinfo is not None and asked > since else None

    def retried(self, now: datetime) -> bool:
        """Whether another try was asked for since it was sent back: it need not wait for that any longer."""
        asked = self.retry_at
        return asked is not None and (asked - now).total_seconds() <= CLOCK_SKEW

    @property
    def deleting(self) -> bool:
        """Whether somebody deleted it."""
        return self.metadata.deletion_timestamp is not None

    @property
    def owner(self) -> dict[str, Any]:
        """The owner reference by which what is made for it goes with it."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.metadata.name,
            "uid": self.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def pod_name(self, task_type: str, index: int) -> str:
        """The name of one of its pods."""
        return checks.pod_name(self.metadata.name, task_type, index)


def parse(manifest: Any) -> TorchJob:
    """A manifest as a TorchJob, defaults applied. InvalidObject with every problem found."""
    large = size_limits.problem(manifest)
    if large is not None:
        raise InvalidObject((large,))
    try:
        job = TorchJob.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidObject(problems.unique(problems.translate(error))) from error
    named = problems.find(JobName, {"name": job.metadata.name}, "metadata")
    found = problems.unique([*named, *checks.check(job.metadata, job.spec)])
    found = found or tuple(demand.countable(job.spec))
    if found:
        raise InvalidObject(found)
    return job
