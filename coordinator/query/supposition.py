"""The facts about a job that the queues do not have: why it is in no queue's order, and what would happen if it were
resumed now.

One rule: the code that judges a job when it is routed judges it here, too.
"""

from collections.abc import Callable
from dataclasses import replace

from coordinator.cache.views import JobView
from coordinator.query.questions import Document
from coordinator.routing import eligibility, feasibility, growth_entries, pool_capacity, queue_specs, route
from coordinator.routing.eligibility import Eligibility
from coordinator.routing.feasibility import ClusterLimits
from crds.resources import amounts
from queues.values import Entry, QueueSpec

OUT_OF_ORDER = frozenset({"Held", "Parked", "BackingOff", "WaitingForScheduler"})
"""The codes of a job's eligibility that end when the job is resumed."""
MOST_NODES = 3
"""The most cordoned nodes that are named."""
NO_ROOM_NOW = "the pool has no room for the job: nodes are not ready, or other pods take their room"


def resume(job: JobView) -> JobView:
    """Return the job as it would be after `torchq job resume`."""
    waits = job.waits and replace(job.waits, parked=False, until=0.0)
    return replace(job, suspended=False, held=False, waits=waits)


def describe_if_resumed(job: JobView, limits: ClusterLimits, suppose: Callable[[Entry], Document]) -> Document:
    """Return whether a job would fit if it were resumed, and if not, the reason for which the job would wait.

    `suppose` asks the queues (`StoreQueries.suppose`), and may raise QueueError.
    """
    view = resume(job)
    findings = feasibility.judge(feasibility.request_of(view), limits)
    if findings:
        code = findings[0].code if findings[0].code in eligibility.CODES else "ExceedsQuota"
        return {"fits": False, "code": code, "message": _join(findings)}
    obstacle = eligibility.outside_block(view, limits.rules, 0.0)  # a resumed job makes no pause after a refusal
    obstacle = obstacle or eligibility.port_block(view.key, view.ports, limits.rules)
    if obstacle is not None:
        return {"fits": False, "code": obstacle.code, "message": obstacle.sentence}
    document = suppose(route.entry(view, limits.rules))
    return document | _too_large_now(limits) if document["code"] == "ExceedsQuota" else document


def describe_room(document: Document, job: JobView, limits: ClusterLimits) -> Document:
    """Return how the limits apply to a waiting job: why it is too large, or which nodes are closed."""
    if document.get("code") == "ExceedsQuota":
        return describe_too_large(job, limits)
    closed = cordoned(limits) if document.get("code") in ("WaitingForPool", "WaitingForNodes") else ""
    return {"message": f"{document['message']}; {closed}"} if closed else {}


def describe_too_large(job: JobView, limits: ClusterLimits) -> Document:
    """Return the answer for a job that is larger than its queue or the pool is now."""
    findings = feasibility.judge(feasibility.request_of(job), limits)
    return {"message": _join(findings)} if findings else _too_large_now(limits)


def _too_large_now(limits: ClusterLimits) -> Document:
    """Return the answer for a job that would have room if all nodes were ready and empty."""
    return {"code": "WaitingForPool", "message": "; ".join(filter(None, (NO_ROOM_NOW, cordoned(limits))))}


def cordoned(limits: ClusterLimits) -> str:
    """Return which nodes take no pods because somebody has cordoned them; empty if there are no such nodes."""
    names = sorted(node.name for node in limits.nodes if node.cordoned)
    shown = ", ".join(names[:MOST_NODES]) + (" and others" if len(names) > MOST_NODES else "")
    return f"cordoned: {shown} ({len(names)} of {len(limits.nodes)} nodes; kubectl uncordon)" if names else ""


def describe_unqueued(job: JobView, stands: Eligibility) -> Document:
    """Return why a job that could wait is in no queue's order."""
    if job.invalid:
        return {"code": "Invalid", "message": "the job cannot be run as it is: its status says why, at once or soon"}
    return {"code": stands.code, "message": stands.sentence} if stands.code else {}


def describe_rest(job: JobView, held: Document, limits: ClusterLimits, now: float) -> Document:
    """Return how many workers an admitted job has and wants, and why the rest waits; empty if it wants no more.

    `held` is what the store holds for the job (`Queries.job`).
    """
    missing = growth_entries.missing(job)
    if not missing or job.admission is None:
        return {}
    granted = job.admission.workers or 0
    reason = held.get("growth") or _describe_unqueued_rest(job, held, limits, now)
    return {"rest": {**reason, "granted": granted, "wanted": granted + missing}}


def _describe_unqueued_rest(job: JobView, held: Document, limits: ClusterLimits, now: float) -> Document:
    assert job.admission is not None
    if held.get("workers", 0) > (job.admission.workers or 0):
        return {"code": "Granted", "message": "there is room for more workers, and a worker process is to add them"}
    specs = {job.admission.queue: QueueSpec(name=job.admission.queue), **limits.specs}
    room = pool_capacity.largest(limits.setting, limits.nodes)
    rules = replace(limits.rules, ceilings=queue_specs.ceilings(specs.values(), room))
    found = growth_entries.judge(job, rules, now)
    if found.code == "ExceedsQuota":
        return {"code": found.code, **_describe_large_rest(job, limits)}
    if found.code:
        return {"code": found.code, "message": found.sentence}
    return {"code": "New", "message": "the coordinator has not put the request into the queue yet"}


def _describe_large_rest(job: JobView, limits: ClusterLimits) -> Document:
    """Return the answer for a job that would be too large for its queue or the pool with one step of workers more: the
    requests of the job with all the workers that it wants."""
    assert job.admission is not None
    assert job.workers is not None
    more = amounts.scale(job.workers.share, growth_entries.missing(job))
    total = amounts.add(job.admission.charge, more)
    return describe_too_large(replace(growth_entries.quota_view(job), charge=total), limits)


def _join(findings: list[feasibility.Obstacle]) -> str:
    return "; ".join(finding.message for finding in findings)
