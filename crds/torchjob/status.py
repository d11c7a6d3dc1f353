"""What torchq says about a TorchJob.

One rule: the coordinator writes why a job waits (`queue.name`, `reason`, `message`), the worker everything else; what a
rebuild of the queues needs is here. Of `queue`, a worker writes the rest when it sends a job back, in the patch that
takes the admission away, and takes away what no longer holds when it admits the job.
"""

from typing import Annotated

from pydantic import Field

from crds.model import Observed, Text, Time
from crds.torchjob.conditions import FINISHED, Condition, Phase

Tally = Annotated[int, Field(ge=0)]
ResourceName = Annotated[str, Field(max_length=253)]
PodName = Annotated[str, Field(max_length=253)]
TaskName = Annotated[str, Field(max_length=63)]
NodeName = Annotated[str, Field(max_length=253)]
Setback = Annotated[str, Field(max_length=64)]
"""A pod's uid; with a slash and a number: that restart of its main container."""
MOST_AT_ONCE = 1000


class QuotaRefusal(Observed):
    """A ResourceQuota of the namespace for which the API server refused an object of the job."""

    name: ResourceName = ""
    """The ResourceQuota; empty if the API server named none."""
    hard: Annotated[dict[ResourceName, Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """The limits of the ResourceQuota that it named then; an empty value where it gave no number."""
    generation: Tally = 0
    """The generation of the spec that was refused; the refusal says nothing of another."""
    times: Tally = 1
    """How often in a row ResourceQuotas refused the job while its spec and the limits stayed as they are: its pauses
    double with each."""


class QueueStatus(Observed):
    """How the job waits."""

    name: ResourceName = ""
    reason: Annotated[str, Field(max_length=64)] = ""
    """Why it waits: a code."""
    message: Text = ""
    """Why it waits: a sentence without moving numbers."""
    since: Time | None = None
    """When it was sent back; when it was submitted, if it never was."""
    not_before: Time | None = None
    """It backs off until then."""
    parked: bool = False
    """It failed to start too often and waits for its owner."""
    tries: Tally = 0
    """How often in a row it was admitted and did not run in time."""
    drained: bool = False
    """It has given back room because its queue was drained, or to be resized: it comes first when the queue goes on."""
    held: Annotated[dict[ResourceName, int], Field(max_length=65)] | None = None
    """What it held then, in canonical names and units: it comes first only while it asks for no more."""
    refused_by: QuotaRefusal | None = None
    """The ResourceQuota that refused the job in its newest try; `notBefore` is the end of the pause after it."""


class Admission(Observed):
    """The room the job holds."""

    queue: ResourceName
    attempt: Tally
    epoch: Tally
    charge: Annotated[dict[ResourceName, int], Field(max_length=65)] = Field(default_factory=dict)
    """What is counted against queue and pool, in canonical names and units."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """The port held for the job where its pods share one address; 0 where they do not."""
    pick: Tally = 0
    """Which pick of its epoch this was: epoch and pick are the order of admission."""
    admitted_at: Time | None = None
    gang_scheduler: Annotated[str, Field(max_length=63)] | None = None
    """Who binds the pods of this admission; fixed for as long as it lasts."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """How many workers an elastic job was admitted with; None: the number cannot change."""
    nproc_per_node: Annotated[dict[TaskName, Annotated[int, Field(ge=1)]], Field(max_length=16)] | None = None
    """By task type, how many processes torchrun starts in each pod; a task that is not named has 1. None: what
    torchElasticPolicy.nprocPerNode says, else 1. Versions that had no spec.nprocPerNode wrote none: the pods of a job
    that they admitted keep their number of processes, also where they are replaced."""


class TaskStatus(Observed):
    """The pods of one task, counted."""

    active: Tally = 0
    """Pending or running."""
    ready: Tally = 0
    """Running."""
    succeeded: Tally = 0
    failed: Tally = 0
    evicted: Tally = 0


class StageStatus(Observed):
    """A stage of the job that began when the tasks it waits for had succeeded, or when its job went on."""

    began: Time
    running: Time | None = None
    """When every task of it had its least number of pods for the first time."""


class Measured(Observed):
    """What pods of the job ask for, where an API server has made that more than their templates say: defaults of a
    LimitRange, the overhead of a RuntimeClass, what a webhook adds."""

    templates: Annotated[str, Field(max_length=64)] = ""
    """The digest of the templates that it was measured for (`TorchJobSpec.digest`); it says nothing of others."""
    pods: Annotated[dict[TaskName, Annotated[dict[ResourceName, int], Field(max_length=65)]], Field(max_length=16)] = (
        Field(default_factory=dict)
    )
    """By task type, what one pod asks for, in canonical names and units."""


class TorchJobStatus(Observed):
    """The state of a TorchJob."""

    phase: Phase = ""
    """One word for people; the conditions say the same in detail."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    tenant_queue: ResourceName = ""
    """The tenant queue the job waits in, or that pays for it."""
    queue: QueueStatus | None = None
    admission: Admission | None = None
    measured: Measured | None = None
    """What its pods ask for beyond their templates; kept over suspension, so that the job is charged for it again."""
    attempt: Tally = 0
    """The number of the newest attempt ever admitted; kept over suspension."""
    task_statuses: Annotated[dict[str, TaskStatus], Field(max_length=16)] = Field(default_factory=dict)
    stages: Annotated[dict[str, StageStatus], Field(max_length=16)] = Field(default_factory=dict)
    """By their index: the stages that have begun under this admission; the first one only where its time began anew
    since, because the job went on before its pods were gone."""
    restart_count: Tally = 0
    """Restarts for failures of the job's own, against `backoffLimit`."""
    restart_not_before: Time | None = None
    """When the pods of the newest counted restart may be made again: until then the job backs off. Removed once the job
    has run for 10 minutes since."""
    backing_off: Annotated[tuple[PodName, ...], Field(max_length=MOST_AT_ONCE)] = ()
    """The pods that are not made before `restartNotBefore`; empty: no pod of the job is."""
    consecutive_restarts: Tally = 0
    """How often in a row the job has failed since it last ran for 10 minutes: the back-off doubles with each."""
    restart_generation: Tally = 0
    """How often all pods of the job were restarted together, for whatever reason; its pods carry it as a label."""
    recreate_generation: Tally = 0
    """The newest of these restarts in which pods were to be replaced, not restarted in place."""
    replacing: Annotated[tuple[Setback, ...], Field(max_length=MOST_AT_ONCE)] = ()
    """What became of single pods and is counted already, until it shows no more: the pods are being replaced."""
    disruptions: Tally = 0
    """Failures that were not the job's fault: evictions, lost nodes."""
    disruptions_spaced_until: Time | None = None
    """When the disruptions so far are paid for, at one per 10 seconds: more than 10 ahead of that are spaced."""
    node_failures: Annotated[dict[NodeName, Tally], Field(max_length=64)] = Field(default_factory=dict)
    """How often pods of this admission failed on a node."""
    excluded_nodes: Annotated[tuple[NodeName, ...], Field(max_length=64)] = ()
    """Nodes that pods of this job are kept away from, because they failed there repeatedly."""
    restart_request: Annotated[str, Field(max_length=64)] = ""
    """The id of the newest request for a restart that was obeyed."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """The label selector of the workers' pods, for the scale subresource."""
    start_time: Time | None = None
    completion_time: Time | None = None
    observed_generation: Tally = 0

    @property
    def finished(self) -> bool:
        """Whether the job has reached its end, good or bad."""
        return self.phase in FINISHED
