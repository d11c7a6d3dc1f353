"""The documents that the read-only API answers with.

One rule: a model has every field that an answer may have, and forbids all others, so that this description is whole.
Amounts are Kubernetes quantities as text, by the name of the resource; times are seconds since 1970 or RFC 3339.

The answers themselves are made as dicts (`coordinator.query.documents`), and tests compare them with these models.
Answers that are made from the models would cost more than twice as much: 23 ms of CPU instead of 11 for 1,000 queues,
35 ms instead of 5 for 10,000 places.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Quantities = dict[str, str]
"""Amounts as Kubernetes quantities by the name of the resource."""


class AnswerModel(BaseModel):
    """A document, with names as in Kubernetes."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)


class ObjectName(AnswerModel):
    """The metadata of an object."""

    name: str


class QueueSettings(AnswerModel):
    """The settings of a queue; what is absent has no limit."""

    weight: int
    stop_policy: Literal["None", "Hold", "HoldAndDrain"]
    ordering: Literal["BestEffortFIFO", "StrictFIFO"]
    aging_seconds: float
    quota: Quantities | None = None
    cohort: str | None = None
    borrowing_limit: Quantities | None = None


class Holder(AnswerModel):
    """A job that holds room. One that the reader may not read is "a job of another team", and has no uid, and no queue
    unless the reader uses it."""

    job: str
    uid: str
    queue: str
    charge: Quantities


class Holders(AnswerModel):
    """Who holds the room, where that is known."""

    holders: list[Holder] | None = Field(default=None, description="those that hold most of it")
    other_holders: int | None = Field(default=None, description="how many others hold some of it")


class QueueFigures(Holders):
    """What a queue has and uses now."""

    pending: int = Field(description="jobs that wait")
    admitted: int = Field(description="jobs that hold room")
    usage: Quantities
    idle_usage: Quantities | None = Field(default=None, description="the part of the usage that is idle growth")
    deleted: bool | None = Field(default=None, description="true: there is no such queue any more; it admits no job")
    oldest_wait_seconds: float | None
    first: str | None = Field(description="namespace/name of the first job, or `a job of another team`")
    first_score: float | None = Field(description="the place of the first job: earlier is smaller")
    share: str = Field(description="part of all usage, in whole percents")
    target: str = Field(description="part of the weights of all busy queues, in whole percents")
    lag: float | None = Field(description="cost by which the queue is behind its share, or, below 0, ahead of it")


class Queue(AnswerModel):
    """A queue: a TenantQueue whose status has the present figures."""

    api_version: str
    kind: Literal["TenantQueue"]
    metadata: ObjectName
    spec: QueueSettings
    status: QueueFigures


class QueueItems(AnswerModel):
    """All queues."""

    items: list[Queue]


class Place(AnswerModel):
    """The place of a waiting job."""

    job: str
    uid: str
    queue: str
    position: int
    of: int


class PlaceItems(AnswerModel):
    """The places of the first waiting jobs of some queues."""

    items: list[Place]


class ForecastPick(AnswerModel):
    """A pick that the leader is going to make if nothing changes."""

    pick: int
    queue: str
    job: str
    uid: str
    cost: int
    demand: Quantities
    workers: int = Field(description="workers that the pick gives; 0: all of the job's")
    growth: bool = Field(description="whether the workers are added to those that the job has")
    priority: int
    wait_seconds: float


class AnotherPick(AnswerModel):
    """A pick of a job that the reader may not read."""

    pick: int
    job: Literal["a job of another team"]


class PoolRoom(AnswerModel):
    """The size of the pool; a capacity of null has no limit."""

    capacity: Quantities | None
    used: Quantities


class ForecastPicks(AnswerModel):
    """The next picks."""

    items: list[ForecastPick | AnotherPick]
    pool: PoolRoom
    waiting: int


class AlikeNodes(AnswerModel):
    """The nodes of one shape: they offer the same GPUs, and the same cpu and memory in whole cores and GiB."""

    shape: Quantities = Field(description="what one of them offers")
    resource: str = Field(description="the main resource, by which fragments are counted: the GPUs, or cpu")
    nodes: int
    ready: int = Field(description="how many take new pods")
    capacity: Quantities = Field(description="what all of them offer")
    free: Quantities = Field(description="what is free on those that take new pods")
    largest_pod: Quantities = Field(description="the largest pod that fits now; empty if none fits")
    largest_pod_nodes: int = Field(description="how many nodes take this pod")
    fragments: str = Field(description="what is free of the main resource, but not to a pod of a whole node")


class PoolNodes(AnswerModel):
    """The nodes of the pool."""

    pool: Literal["nodes", "numbers", "none"] = Field(description="what the size of the pool follows from")
    source: Literal["leader", "replica"] = Field(description="replica: a coordinator that does not lead has answered")
    items: list[AlikeNodes]
    message: str = Field(description="why there are no items; empty if there are")


class Supposition(AnswerModel):
    """What would happen to a job if it were resumed now."""

    fits: bool
    code: str
    message: str
    numbers: str | None = Field(default=None, description="the numbers behind it, in words")


class Explained(AnswerModel):
    """A code and a sentence about why something waits."""

    code: str | None = None
    message: str | None = None
    numbers: str | None = Field(default=None, description="the numbers behind it, in words")


class WaitingJob(Explained, Holders):
    """A job that waits in the order of its queue."""

    state: Literal["waiting"]
    job: str
    uid: str
    queue: str
    position: int
    of: int
    next_pick: int | None = Field(description="its number among the next picks")
    pick_with_room: int | None = Field(description="its number if the pool had room for everything")
    priority: int
    submitted: float
    demand: Quantities


class WaitingRest(Explained, Holders):
    """Why the further workers of an admitted job wait."""

    granted: int
    wanted: int
    state: Literal["waiting"] | None = None
    job: str | None = None
    uid: str | None = None
    queue: str | None = None
    position: int | None = None
    of: int | None = None
    next_pick: int | None = None
    pick_with_room: int | None = None
    priority: int | None = None
    submitted: float | None = None
    demand: Quantities | None = None


class AdmittedJob(AnswerModel):
    """A job that holds room."""

    state: Literal["admitted"]
    job: str
    uid: str
    queue: str
    attempt: int
    workers: int
    charge: Quantities
    growth: WaitingJob | None = None
    rest: WaitingRest | None = None


class AbsentJob(Explained):
    """A job that is in no queue's order."""

    state: Literal["absent"]
    job: str
    uid: str
    if_resumed: Supposition | None = None
    rest: WaitingRest | None = None


JobState = Annotated[WaitingJob | AdmittedJob | AbsentJob, Field(discriminator="state")]
"""Where a job stands, and why."""


class ReportOfPod(AnswerModel):
    """The last report of a pod."""

    pod: str
    step: int
    since: str
    reported_at: str
    steps_per_second: float | None = None
    samples_per_second: float | str | None = None
    loss: float | str | None = Field(default=None, description="text, as NaN, if it is no finite number")
    gauges: dict[str, float | str] | None = None
    checkpoint: int | None = None
    protocol: str | None = Field(default=None, description="kubeflow, if it did not come by torchq's own protocol")
    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    total_steps: int | None = None


class JobReport(AnswerModel):
    """What the pods of a job have reported; without a report only `pods`, which is empty."""

    pods: list[ReportOfPod]
    step: int | None = None
    since: str | None = None
    steps_per_second: float | None = None
    samples_per_second: float | None = None
    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    total_steps: int | None = None
    reported_at: str | None = None


class CheckFinding(AnswerModel):
    """What a job would lack."""

    code: str
    field: str
    message: str
    firm: bool = Field(description="whether the job can never run because of it")


class Findings(AnswerModel):
    """Whether a job could ever run."""

    findings: list[CheckFinding]


class ElasticSize(AnswerModel):
    """The size of an elastic job."""

    job: str
    uid: str
    queue: str
    workers: int
    wanted: int
    idle: int
    leaving: int
    min: int
    max: int


class PlannedResize(ElasticSize):
    """A change of the size of a job."""

    to: int
    reason: str
    for_: str | None = Field(alias="for", description="the job that gets the room")
    for_queue: str | None
    message: str


class UnchangedSize(ElasticSize):
    """A job whose size does not change, and why."""

    code: str
    message: str


class OpenClaim(AnswerModel):
    """Room that is freed for the first job of a queue."""

    queue: str
    job: str


class ScalePlan(AnswerModel):
    """The plan of resizes as it would be now."""

    autoscale: Literal["on", "off"]
    from_leader: bool
    resizes: list[PlannedResize]
    claims: list[OpenClaim]
    unchanged: list[UnchangedSize]


class StatusDetails(AnswerModel):
    """What answered."""

    name: str


class FailureStatus(AnswerModel):
    """A refusal, as an API server writes it (metav1.Status)."""

    kind: Literal["Status"]
    api_version: Literal["v1"]
    status: Literal["Failure"]
    code: int
    message: str
    details: StatusDetails
