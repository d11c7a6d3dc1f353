"""The status of a TorchJob.

One rule: the coordinator writes why a job waits (`queue.name`, `reason`, `message`), what size it is to have
(`target`), whether its room is taken back (`recalled`), and whether it makes steps (`reported`, `hang`). The worker
writes everything else, removes these when they are over, and writes `queue` in the patch that sends a job back. The
status holds all that a rebuild of the queues needs.
"""

import hashlib
from operator import not_
from typing import Annotated

from pydantic import Field

from crds.holds import MOST, ClosedHold
from crds.label_names import MOST_LEVELS
from crds.metadata import RestoredFrom
from crds.model import LabelName, LenientModel, Text, Time
from crds.torchjob.conditions import FINISHED, Condition, Phase
from crds.torchjob.tasks import MOST_TASKS
from crds.trained_models import ModelFiles

Tally = Annotated[int, Field(ge=0)]
ResourceName = Annotated[str, Field(max_length=317)]
Charge = Annotated[dict[ResourceName, int], Field(max_length=65)]
PodName = Annotated[str, Field(max_length=253)]
TaskName = Annotated[str, Field(max_length=63)]
NodeName = Annotated[str, Field(max_length=253)]
Setback = Annotated[str, Field(max_length=64)]
"""The uid of a failed pod; with a slash and a number, that restart of the pod's main container."""
Run = Annotated[str, Field(max_length=64)]
"""A digest that is another one after each restart and each resize of the job (`TorchJobStatus.run`)."""
MOST_AT_ONCE = 1000
MOST_RESULT = 3500
"""The number of bytes of a job's result."""
MOST_LEFT = 64
"""The number of nodes that a pod avoids because others have left them."""
IDLE, GIVE_BACK, GAIN_TOO_SMALL = "Idle", "GiveBack", "GainTooSmall"
"""The reasons of a `Target`."""
MOST_EARLY = 400
"""The number of characters of a failure that is compared with the next one."""
_INDEXES = r"[0-9]{1,4}(-[0-9]{1,4})?"
WorkerIndexes = Annotated[str, Field(max_length=65_536, pattern=f"^{_INDEXES}(,{_INDEXES})*$")]
"""Indexes of workers as numbers and ranges (`crds.torchjob.grant`)."""


class QuotaRefusal(LenientModel):
    """A ResourceQuota of the namespace because of which the API server refused an object of the job."""

    name: ResourceName = ""
    """The name of the ResourceQuota; empty if the API server named none."""
    hard: Annotated[dict[ResourceName, Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """The limits of the ResourceQuota in the API server's message; a value is empty if the message had no number."""
    generation: Tally = 0
    """The generation of the refused spec; the refusal does not apply to another generation."""
    times: Tally = 1
    """The number of consecutive refusals for the same spec and limits; the pause doubles with each refusal."""


class QueueStatus(LenientModel):
    """The state of the job in its tenant queue."""

    name: ResourceName = ""
    reason: Annotated[str, Field(max_length=64)] = ""
    """The reason why the job waits, as a code."""
    message: Text = ""
    """The reason why the job waits, as a sentence; it contains no numbers that change often."""
    since: Time | None = None
    """The time at which the job was last sent back to the queue, or of its submission."""
    not_before: Time | None = None
    """The job backs off until this time."""
    parked: bool = False
    """Whether the job has failed to start too often and waits for a user to retry it."""
    tries: Tally = 0
    """The number of consecutive admissions in which the job did not run in time."""
    drained: bool = False
    """Whether the job was sent back because its queue was drained, its domain closed, or to be resized: it is first."""
    held: Charge | None = None
    """The charge of the drained job. The job is first in the queue only while it requests no more."""
    refused_by: QuotaRefusal | None = None
    """The ResourceQuota that refused the job in its latest attempt; the pause after it ends at `notBefore`."""
    refusals: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """The number of consecutive admissions after which the job waited for its scheduler (WaitingForScheduler)."""


class Admission(LenientModel):
    """The capacity that the job holds in its queue and the pool."""

    queue: ResourceName
    attempt: Tally
    epoch: Tally
    charge: Charge = Field(default_factory=dict)
    """The resources that count against the queue and the pool, in canonical names and units."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """The port that is reserved for the job if its pods share one address, else 0."""
    pick: Tally = 0
    """The number of the pick within its epoch; epoch and pick give the order of admission."""
    admitted_at: Time | None = None
    running: Time | None = None
    """The first time at which every task had its minimum of running pods; absent before it."""
    gang_scheduler: Annotated[str, Field(max_length=63)] | None = None
    """The scheduler that binds the pods of this admission; it does not change during the admission."""
    success_policy: Annotated[str, Field(max_length=63)] | None = None
    """The success policy by which this admission is judged. Versions without spec.successPolicy did not write the
    field: a job that they admitted ends with its Master."""
    topology: Annotated[tuple[LabelName, ...], Field(max_length=MOST_LEVELS, exclude_if=not_)] = ()
    """The labels of nodes, the widest first, by which the ranks of static worlds are given while the job is admitted;
    absent if ranks follow from tasks and indexes."""
    domain: Annotated[str, Field(max_length=381, exclude_if=not_)] = ""
    """The label and value, as LABEL=VALUE, of all nodes on which the job's pods may run; absent if there is none."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """The number of workers that the job was granted; if absent, all that it requests."""
    indexes: WorkerIndexes | None = None
    """The indexes of the granted workers, as numbers and ranges, such as 0,2-4; absent if they are the lowest."""
    grown: Tally | None = None
    """The number of times that workers were added to this admission. Versions without it did not write the field."""
    declined: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """The number of the last growth of which its owner got less than he wanted; absent after any other change."""
    idle: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """The number of granted workers that are not paid for: the job has them while nobody else can use their room."""
    nproc_per_node: Annotated[dict[TaskName, Annotated[int, Field(ge=1)]], Field(max_length=16)] | None = None
    """For each task type, the number of processes that torchrun starts in each pod; 1 for any other task. Jobs that
    versions without spec.nprocPerNode admitted lack the field: torchElasticPolicy.nprocPerNode applies, else 1."""


class Scaling(LenientModel):
    """The change of the number of workers that is under way; it is removed when the change has ended."""

    from_workers: Annotated[Tally, Field(alias="from")]
    """The number of workers before the change."""
    to: Tally
    """The requested number of workers."""
    since: Time
    """The time of the request; it is the age with which added workers wait in the queue."""
    deadline: Time | None = None
    """The time until which added workers have to join; after it, those that have not joined are removed."""
    victims: Annotated[tuple[PodName, ...], Field(max_length=MOST_TASKS)] = ()
    """The pods that are removed. Their end is no failure of the job."""
    request: Annotated[str, Field(max_length=316)] = ""
    """The kind and name of the object that requested the change, as ScaleOut/grow; empty: an edit of the spec."""
    not_before: Time | None = None
    """The time until which no workers are added, because added workers did not join."""
    tries: Tally = 0
    """The number of consecutive times that added workers did not join."""
    world: WorkerIndexes | None = None
    """In the mode InPlaceRestart, the workers that train while added ones wait to join them; absent if none waits."""

    @property
    def is_all_or_none(self) -> bool:
        """Whether all of the requested workers are added, or none, because a ScaleOut requests them."""
        return self.request.startswith("ScaleOut/")


class Target(LenientModel):
    """The number of workers that the coordinator has decided on, beside the number that the owner wants."""

    workers: Annotated[int, Field(ge=1, le=MOST_TASKS)]
    """The number of workers that the job is to have."""
    reason: Annotated[str, Field(max_length=64)]
    """Idle: nobody else can use the room. GiveBack: a waiting job is entitled to it. GainTooSmall: the last workers
    that were added have made the others slower."""
    message: Text = ""
    """The reason as a sentence; for GiveBack, the job of the same namespace that the room is for."""
    recipient: Annotated[str, Field(max_length=400)] = ""
    """For GiveBack, a digest of the job that the room is for: the coordinator finds it again, a reader not its name."""
    victims: Annotated[tuple[PodName, ...], Field(max_length=MOST_AT_ONCE)] = ()
    """The workers that leave before others, because the waiting job needs their nodes."""
    since: Time
    """The time of the decision."""
    wish: Tally = 0
    """The number of workers that the owner wanted at that time; the decision is void once the owner wants fewer."""


class Saving(LenientModel):
    """A request to save before a restart that leaves the containers too little time for that."""

    request: Annotated[str, Field(max_length=80)]
    """What the job saves for: the id of its owner's request for a restart, or the generation of the next world."""
    since: Time
    """The time of the request; it goes on without an answer after `schedulingPolicy.checkpointSeconds`."""


class Resized(LenientModel):
    """The last change of the number of workers."""

    at: Time
    """The time at which it ended."""
    seconds: Tally = 0
    """How many seconds after the last grant all added workers ran, also after later removals; 0: none were added."""


class Hang(LenientModel):
    """The coordinator's finding that the job, or one pod of it, makes no steps."""

    since: Time
    """The time since which no step was made, by the coordinator's clock."""
    run: Run
    """The run of the job in which it hangs; the finding is void once the job was restarted or resized."""
    behind: Annotated[tuple[PodName, ...], Field(max_length=MOST_AT_ONCE)] = ()
    """The pods with the lowest steps."""
    silent: Annotated[tuple[PodName, ...], Field(max_length=MOST_AT_ONCE)] = ()
    """The pods that have stopped to report."""
    blamed: PodName = ""
    """The pod that alone is to blame, because others go on; empty if there is none."""


class Reported(LenientModel):
    """What the job has reported since its last restart or resize, as the coordinator has noticed it."""

    run: Run
    """The run of the job; the field is void in another one."""
    moved: bool = False
    """Whether a step has been made. Before the first one, `health.firstStepSeconds` count."""


class Completion(LenientModel):
    """The coordinator's record that pods have completed the job, although no worker has ended the job yet."""

    attempt: Tally
    """The attempt of these pods; the record is void in another one."""
    restart_generation: Tally
    """The restart generation of these pods; the record is void after another restart."""
    result: Annotated[str, Field(max_length=MOST_RESULT, exclude_if=not_)] = ""
    """The result of the job, as `status.result` has it later."""
    model: ModelFiles | None = None
    """The files of the job's model; absent if nobody has counted them."""


class Departure(LenientModel):
    """A pod that was about to lose its node, or was preempted, and that does not run elsewhere yet."""

    node: NodeName = ""
    """The node that it left; pods that are created meanwhile avoid the node. Empty for a preempted pod."""
    earlier: Annotated[tuple[NodeName, ...], Field(max_length=MOST_LEFT, exclude_if=not_)] = ()
    """The nodes that it has left before, without having run since; they are avoided, too."""
    since: Time
    """The time at which it was deleted."""


class TaskStatus(LenientModel):
    """The numbers of pods of one task, by state."""

    active: Tally = 0
    """Pods that are pending or running."""
    ready: Tally = 0
    """Pods that are running."""
    succeeded: Tally = 0
    failed: Tally = 0
    evicted: Tally = 0


class StageStatus(LenientModel):
    """A stage of the job; it begins when the tasks that it waits for have succeeded, or when its job is resumed."""

    began: Time
    running: Time | None = None
    """The first time at which every task of the stage had its minimum number of running pods."""


class InPlace(LenientModel):
    """What restarts the containers of the job's pods in place, as it was decided when the latest of them were made."""

    driver: Annotated[str, Field(max_length=63)]
    """kubernetes or kruise; recreate: nothing does, and pods are replaced."""
    message: Annotated[Text, Field(exclude_if=not_)] = ""
    """Why it is not Kubernetes, where that was tried first; empty if it is, or if an admin has chosen the driver."""
    charged: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether `measured` includes restart agents: pods of this admission have them, or had them."""
    settled: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether the job's pods are made without the restart agent from now on, because it was in the way once."""


class PodMeasurements(LenientModel):
    """The measured requests of the job's pods, by which they exceed their templates, as by claims or a LimitRange."""

    templates: Annotated[str, Field(max_length=64)] = ""
    """The digest of the measured templates; the measurement does not apply to other templates."""
    pods: Annotated[dict[TaskName, Charge], Field(max_length=16)] = Field(default_factory=dict)
    """For each task type, the requests of one pod, in canonical names and units."""
    claims: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether the devices of all resource claims of these templates are included."""


class TorchJobStatus(LenientModel):
    """The state of a TorchJob."""

    phase: Phase = ""
    """The state of the job in one word; the conditions have the details."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    blocked_since: Time | None = None
    """The time since which the API server fails to create an object of the job; absent if it does not fail."""
    refused_since: Time | None = None
    """The time since which a gang of the job has waited for a scheduler that does not bind it; absent if none does."""
    recalled: Time | None = None
    """The coordinator takes the room back because of the refusal with this `refusedSince`; else it has no effect."""
    tenant_queue: ResourceName = ""
    """The tenant queue in which the job waits, or to which it is charged."""
    queue: QueueStatus | None = None
    admission: Admission | None = None
    scaling: Scaling | None = None
    target: Target | None = None
    """The size that the coordinator has decided on; it is in force unless the owner has lowered the size since."""
    resized: Resized | None = None
    saving: Saving | None = None
    reported: Reported | None = None
    hang: Hang | None = None
    completed: Completion | None = None
    """Present while pods have completed the job and no worker has ended it: it succeeds even if they are deleted."""
    memory: Annotated[dict[TaskName, Tally], Field(max_length=16)] = Field(default_factory=dict)
    """For each task type with memoryGrowth, the grown memory of the next pods in bytes; kept during a suspension."""
    measured: PodMeasurements | None = None
    """The requests of the job's pods beyond their templates; the charge after a suspension includes them, too."""
    holds: Annotated[tuple[ClosedHold, ...], Field(max_length=MOST, exclude_if=not_)] = ()
    """For how long the job held which room before; what it holds now is `admission`."""
    attempt: Tally = 0
    """The number of the latest admitted attempt; it is kept while the job is suspended."""
    task_statuses: Annotated[dict[str, TaskStatus], Field(max_length=16)] = Field(default_factory=dict)
    stages: Annotated[dict[str, StageStatus], Field(max_length=16)] = Field(default_factory=dict)
    """The stages that have begun, by index, in this admission or before: what has succeeded is not repeated. The first
    stage is listed only if its start time was reset, because the job was resumed before its pods were deleted."""
    restart_count: Tally = 0
    """The number of restarts after failures of the job itself, which count towards `backoffLimit`."""
    restart_not_before: Time | None = None
    """The time until which the job backs off after its latest counted restart; removed after a run of 10 minutes."""
    backing_off: Annotated[tuple[PodName, ...], Field(max_length=MOST_AT_ONCE)] = ()
    """The pods that are not created before `restartNotBefore`; if empty, this applies to all pods of the job."""
    early_failure: Annotated[str, Field(max_length=MOST_EARLY, exclude_if=not_)] = ""
    """The last output of the latest attempt if it failed before a step; an attempt that fails alike is the last."""
    consecutive_restarts: Tally = 0
    """The number of failures since the job last ran for 10 minutes. The back-off doubles with each."""
    restart_generation: Tally = 0
    """The number of restarts of all pods of the job together, for any reason; its pods have it as a label."""
    recreate_generation: Tally = 0
    """The latest of these restarts in which pods had to be replaced, not restarted in place."""
    replacing: Annotated[tuple[Setback, ...], Field(max_length=MOST_AT_ONCE)] = ()
    """Failures of single pods that are counted already, while these pods are being replaced."""
    departed: Annotated[dict[PodName, Departure], Field(max_length=MOST_AT_ONCE, exclude_if=not_)] = Field(
        default_factory=dict
    )
    """The pods that left their nodes, or were preempted, by name, until they run elsewhere. Only the latter counts."""
    training_restarts: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """The number of pods that an elastic job has lost or given up since the last restart of all its pods. Each time,
    torchrun restarts the training processes of the others, which counts towards `maxRestarts`."""
    disruptions: Tally = 0
    """The number of failures that were not caused by the job: evictions and lost nodes."""
    disruptions_spaced_until: Time | None = None
    """The time until which the job has used up its allowance of one disruption per 10 seconds. If the time is more than
    100 seconds ahead, replacements of pods are delayed."""
    node_failures: Annotated[dict[NodeName, Tally], Field(max_length=64)] = Field(default_factory=dict)
    """The number of failures of pods of this admission, for each node."""
    excluded_nodes: Annotated[tuple[NodeName, ...], Field(max_length=64)] = ()
    """The nodes on which pods of this job are not placed, because its pods failed there repeatedly."""
    in_place: InPlace | None = None
    """What restarts the containers of the job's pods in place; the next pods are made for it. Absent where an admin has
    chosen that pods are replaced, and on one machine, whose node needs nothing of pods."""
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """The exit code of the pod, or of torchrun's process in it, because of which the job failed; absent without one."""
    result: Annotated[str, Field(max_length=MOST_RESULT, exclude_if=not_)] = ""
    """What rank 0 gave as the result of the finished job, any value as JSON; absent if it gave none."""
    restart_request: Annotated[str, Field(max_length=64)] = ""
    """The id of the latest request for a restart that was carried out."""
    restored_from: RestoredFrom | None = None
    """The job that this one was before `torchq restore` gave it its end; the history goes on with that job."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """The label selector of the worker pods, for the scale subresource."""
    start_time: Time | None = None
    completion_time: Time | None = None
    observed_generation: Tally = 0

    @property
    def is_finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.phase in FINISHED

    @property
    def run(self) -> str:
        """The run of the job: a digest of everything after which its training processes start again. While workers
        join or leave, it is another one than before and after."""
        resized = self.resized.at if self.resized is not None else None
        size = (self.admission.workers, resized) if self.admission is not None else ()
        restarts = (self.restart_generation, self.restart_count, self.disruptions, self.training_restarts)
        parts = (self.attempt, *restarts, self.restart_request, *size, self.is_changing_size, *sorted(self.departed))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @property
    def is_changing_size(self) -> bool:
        """Whether workers join or leave, or are about to leave; not while more workers are only waited for."""
        admission, scaling = self.admission, self.scaling
        if admission is None or admission.workers is None or scaling is None:
            return False
        return scaling.deadline is not None or bool(scaling.victims) or scaling.to < admission.workers

    @property
    def victims(self) -> tuple[str, ...]:
        """The names of the workers that are being removed."""
        return self.scaling.victims if self.scaling is not None else ()
