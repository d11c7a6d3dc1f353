"""The answers of the recorder: the history of jobs, and usage.

One rule: that of `coordinator.http.openapi.queue_models`. Sums of amount x seconds are exact, and therefore texts.
"""

from pydantic import Field

from coordinator.http.openapi.queue_models import AnswerModel, Quantities


class HeldAmounts(AnswerModel):
    """What was held, as sums over time."""

    seconds: dict[str, str] = Field(description="amount x seconds by resource, in canonical units (cpu: thousandths)")
    hours: dict[str, float] = Field(description="the same as hours: of one core, one GiB, or one of anything else")
    gpu_hours: float = Field(description="of all resources named */gpu together")
    cpu_hours: float
    other_resources: int = Field(description="how many further resources are not named")


class PastJob(AnswerModel):
    """A job, also one that is deleted."""

    namespace: str
    name: str
    uid: str = Field(description="the uid under which the job was submitted first")
    queue: str
    user: str = Field(description="who submitted it; empty: not known")
    outcome: str = Field(description="Succeeded, Failed, Cancelled or Deleted; empty while it has not ended")
    state: str = Field(description="the outcome, else Waiting, Admitted or Running")
    is_approximate: bool = Field(description="whether the end was not seen")
    end_known_to_seconds: int | None = Field(description="how exactly the end is known, if it was not seen")
    submitted: str
    ended: str | None
    waited_seconds: int
    held_seconds: int
    hold_count: int
    held: HeldAmounts
    attempts: int
    restarts: int
    disruptions: int
    reason: str
    message: str
    result: str = Field(description="the result of the job as JSON text; empty: none")


class PastHold(AnswerModel):
    """A time for which a job held the same room, or several such times together."""

    number: int
    numbers: str = Field(description="of several together, all their numbers, such as 1-3,5")
    queue: str
    attempt: int
    workers: int | None
    charge: Quantities
    unpaid: Quantities = Field(description="the part of the charge that was idle growth")
    other_resources: int
    from_: str = Field(alias="from")
    running: str | None
    to: str | None = Field(description="null: it has not ended")
    ended: str = Field(description="why it ended")
    is_approximate: bool
    held_seconds: int
    held: HeldAmounts
    idle_growth: HeldAmounts


class OutlivingPod(AnswerModel):
    """A pod that occupied its room after its job had ended, or had given the room back."""

    queue: str
    charge: Quantities
    from_: str = Field(alias="from")
    to: str | None
    is_approximate: bool
    held: HeldAmounts


class Namesake(AnswerModel):
    """Another job of the same name."""

    uid: str
    submitted: str
    outcome: str


class PastJobs(AnswerModel):
    """One page of jobs, newest submission first."""

    until: str = Field(description="up to when everything is recorded")
    items: list[PastJob]
    continue_: str = Field(alias="continue", description="leads to the next page; empty on the last")


class PastJobDetails(PastJob):
    """One job with its holds."""

    until: str = Field(description="up to when everything is recorded")
    holds: list[PastHold] = Field(description="the newest; hold_count has the number of all")
    pods: list[OutlivingPod] = Field(description="the newest pods that went on after the job")
    pod_count: int = Field(description="how many pods went on after the job")
    others: list[Namesake] = Field(description="the newest other jobs of this name")
    other_count: int = Field(description="how many other jobs have this name")


class WaitSeconds(AnswerModel):
    """How long jobs waited for their first admission."""

    p50: int
    p95: int


class UsageLine(AnswerModel):
    """What one queue, namespace or user has used."""

    name: str
    jobs: int
    held: HeldAmounts
    idle_growth: HeldAmounts
    failed: HeldAmounts = Field(description="the part of jobs that have failed")
    share_percent: int | None = Field(description="part of all that was paid")
    target_percent: int | None = Field(description="part that the weights entitle a queue to")
    price: float | None = Field(description="by the setting prices; null: there are none")
    wait_seconds: WaitSeconds | None


class TimeSpan(AnswerModel):
    """A time from the first moment to before the second one."""

    from_: str = Field(alias="from")
    to: str


class PoolUse(TimeSpan):
    """What became of the pool, as far as its size is known."""

    resource: str
    offered_hours: float
    seconds: dict[str, str] = Field(description="offered, and its parts, as amount x seconds")
    percents: dict[str, int] = Field(description="paid, idleGrowth, idleWhileWaiting and idle")


class Usage(TimeSpan):
    """Who has used how much in a span."""

    by: str
    until: str = Field(description="up to when everything is recorded")
    zone: str
    items: list[UsageLine]
    others: UsageLine | None = Field(description="all that the reader may not read, and all beyond the largest lines")
    cluster: PoolUse | None = Field(description="null: it is not known how many GPUs or CPUs the pool had")
    gaps: list[TimeSpan] = Field(description="times for which nothing was recorded")
    other_gaps: int


class ShareStep(TimeSpan):
    """The share of a queue in a part of the span."""

    share_percent: int | None = Field(description="part of all that was paid; null: there was none")
    target_percent: int | None = Field(description="part that its weight entitles it to; null: it wanted none")


class TimelineJob(AnswerModel):
    """A job of the queue in time."""

    namespace: str
    name: str
    uid: str
    state: str = Field(description="its outcome, else Waiting, Admitted or Running")
    submitted: str
    ended: str | None
    is_approximate: bool = Field(description="whether the end was not seen")
    holds: list[TimeSpan] = Field(description="when it held room, the newest")
    waits: list[TimeSpan] = Field(description="when it waited in its queue, the newest")


class Timeline(TimeSpan):
    """What a queue did in a span."""

    until: str = Field(description="up to when everything is recorded")
    steps: list[ShareStep]
    items: list[TimelineJob] = Field(description="its jobs of the span, newest submission first")
    has_more_jobs: bool
