"""What would become of a job that its owner, or a back-off, keeps out of its queue's order, if it went on now.

One rule: nothing is changed by asking. The job is judged as it would be after `torchq job resume`, by the same code.
"""

from collections.abc import Callable
from dataclasses import replace

from coordinator.cache.views import JobView
from coordinator.query.documents import Document
from coordinator.routing import eligibility, feasibility, route
from coordinator.routing.eligibility import Standing
from coordinator.routing.feasibility import Known
from queues.values import Entry

OUT_OF_ORDER = frozenset({"Held", "Parked", "BackingOff"})
"""What of its standing a job leaves behind when it goes on."""
TOO_LARGE_NOW = {
    "code": "WaitingForPool",
    "message": "the pool has no room for the job: nodes are not ready, or other pods take their room",
}
"""Of a job for which there is room once all nodes are ready and empty."""


def going_on(job: JobView) -> JobView:
    """The job without what keeps it out of the order."""
    waits = job.waits and replace(job.waits, parked=False, until=0.0)
    return replace(job, suspended=False, held=False, waits=waits)


def supposed(job: JobView, known: Known, reading: Callable[[Entry], Document]) -> Document:
    """Whether the job would fit, and if not, for what it would wait. `reading` asks the queues
    (`StoreReading.supposed`) and may raise QueueError."""
    view = going_on(job)
    never = feasibility.judge(feasibility.of(view), known)
    if never:
        code = never[0].code if never[0].code in eligibility.CODES else "ExceedsQuota"
        return {"fits": False, "code": code, "message": _together(never)}
    barred = eligibility.over_quota(view, known.rules, 0.0)  # it would not pause
    if barred is not None:
        return {"fits": False, "code": barred.code, "message": barred.sentence}
    found = reading(route.entry(view, known.rules))
    return found | TOO_LARGE_NOW if found["code"] == "ExceedsQuota" else found


def too_large(job: JobView, known: Known) -> Document:
    """What to say of a job that is larger than its queue or the pool is now."""
    never = feasibility.judge(feasibility.of(job), known)
    return {"message": _together(never)} if never else dict(TOO_LARGE_NOW)


def absent(job: JobView, stands: Standing) -> Document:
    """Why a job that could wait is in no order."""
    if job.invalid:
        return {"code": "Invalid", "message": "the job cannot be run as it is: its status says why, at once or soon"}
    return {"code": stands.code, "message": stands.sentence} if stands.code else {}


def _together(never: list[feasibility.Finding]) -> str:
    return "; ".join(each.message for each in never)
