"""How a job stands that waits: whether it has its place in its queue's order, and what is said about it at once.

One rule: pure. A table; the first row that is true counts. What keeps a job out of the order lends it no claim and
blocks nobody.

    code                    in the order   true while
    Held                    no             its owner holds it
    QueueNotFound           no             nobody has created the queue it names, and it is not implied
    NotAllowed              no             the queue is not for its namespace
    ClaimsNotCounted        no             it has resource claims, and the queue's quota names a device
    PriorityClassNotFound   no             nobody has created the PriorityClass it names
    NamespaceQuota          no             a ResourceQuota of its namespace does not hold its pods
    Parked                  no             it did not get to run too often, and nobody has asked for another try since
    BackingOff              no             it did not get to run, and status.queue.notBefore is to come
    QueueDrained            yes            it ran when its queue was drained; it goes first when the queue goes on
    ExceedsQuota            yes            quota, cohort and pool can never give what it asks for

Where queues are implicit, a job's namespace implies two of them: the queue of the namespace's own name, and `default`,
which all namespaces share. No other name makes a queue: each one would be a share of its own.
"""

import difflib
from dataclasses import dataclass, replace
from typing import Literal, get_args

from coordinator.cache.routing_rules import DEFAULT_QUEUE, Rules, is_implied
from coordinator.cache.views import JobView
from coordinator.routing import namespace_quota
from crds.resources import amounts
from crds.resources.amounts import NOTHING
from crds.torchjob import claims, resource_quota
from queues.picking import explain

Code = Literal[
    "Held",
    "QueueNotFound",
    "NotAllowed",
    "ClaimsNotCounted",
    "PriorityClassNotFound",
    "NamespaceQuota",
    "Parked",
    "BackingOff",
    "QueueDrained",
    "ExceedsQuota",
]
CODES = frozenset(get_args(Code))


UNTIL_THERE = ": it waits until there is one"
"""How the sentence about a queue or a PriorityClass that is not there ends."""
MOST_COMPARED = 256
"""Names of queues with which an unknown one is compared."""
MOST_NAMED = 5
"""Names of queues in a sentence."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one job stands."""

    code: Code | Literal[""] = ""
    sentence: str = ""
    """Without moving numbers."""
    ordered: bool = True
    """Whether it has its place in the order."""
    until: float = 0.0
    """When time alone changes that; 0: never."""


GOOD = Standing()


def of(job: JobView, rules: Rules, now: float) -> Standing:
    """How a job stands that is not admitted; `now` is in seconds since 1970."""
    if job.held:
        return Standing("Held", "held back by its owner (schedulingPolicy.hold): torchq job resume", ordered=False)
    found = _barred(job, rules) or over_quota(job, rules, now) or _sent_back(job, now)
    return found or _told(job, rules) or GOOD


def hinted(stands: Standing, job: JobView, rules: Rules) -> Standing:
    """The same; of a queue that is not there, with the queues that may be meant and with what to do."""
    if stands.code != "QueueNotFound":
        return stands
    queue, key = job.queue, job.key
    todo = f"create it (torchq queue create {queue}) or name another one (torchq job move {key.name} QUEUE)"
    return replace(stands, sentence=f"{stands.sentence}; {todo}; {alternatives(queue, key.namespace, rules)}")


def alternatives(queue: str, namespace: str, rules: Rules) -> str:
    """The queues near to a name for which there is none, or else a few others. Costs some milliseconds where there are
    many queues."""
    names = {name for name in rules.queues if allowed(name, namespace, rules)}
    if rules.implicit:
        names |= {name for name in (namespace, DEFAULT_QUEUE) if usable(name, namespace, rules)}
    ranked = sorted(names, key=lambda name: (name[:1] != queue[:1], name))[:MOST_COMPARED]
    near = difflib.get_close_matches(queue, ranked, MOST_NAMED)
    if near:
        return f"did you mean {' or '.join(near)}?"
    some = ", ".join(sorted(names)[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    return f"namespace {namespace} may use {some}" if names else f"there is no queue for namespace {namespace}"


def priority(job: JobView, rules: Rules) -> int:
    """Its priority: what its owner says, else what its PriorityClass stands for."""
    return rules.priorities.get(job.priority_class, 0) if job.priority_class else job.priority


def draining(queue: str, rules: Rules) -> bool:
    """Whether the jobs of a queue have to give back what they hold."""
    spec = rules.queues.get(queue)
    return spec is not None and spec.stop_policy == "HoldAndDrain"


def allowed(queue: str, namespace: str, rules: Rules) -> bool:
    """Whether there is a TenantQueue of this name and the jobs of the namespace may use it."""
    spec = rules.queues.get(queue)
    return spec is not None and spec.allows(namespace, rules.namespaces.get(namespace, {}))


def usable(queue: str, namespace: str, rules: Rules) -> bool:
    """Whether the jobs of the namespace may use a queue of this name, also one that nobody has created."""
    return allowed(queue, namespace, rules) or (queue not in rules.queues and _implicit(queue, namespace, rules))


def _implicit(queue: str, namespace: str, rules: Rules) -> bool:
    return rules.implicit is None or (rules.implicit and is_implied(queue, namespace))


def withdrawn(queue: str, namespace: str, rules: Rules) -> bool:
    """Whether an admin has taken the queue from the jobs of the namespace: it is drained, deleted or closed to them."""
    return draining(queue, rules) or not usable(queue, namespace, rules)


def _barred(job: JobView, rules: Rules) -> Standing | None:
    """What others would have to change."""
    queue, namespace, spec = job.queue, job.key.namespace, rules.queues.get(job.queue)
    if spec is None and not _implicit(queue, namespace, rules):
        sentence = f"there is no TenantQueue {queue}{UNTIL_THERE}"
        return Standing("QueueNotFound", sentence, ordered=False)
    if spec is not None and not allowed(queue, namespace, rules):
        sentence = f"queue {queue} is not for namespace {namespace} (its spec.namespaces and namespaceSelector)"
        return Standing("NotAllowed", sentence, ordered=False)
    if job.claims and spec is not None and (refusal := claims.refusal(queue, spec.quota_amounts)):
        return Standing("ClaimsNotCounted", f"{job.claims}: {refusal}", ordered=False)
    if job.priority_class and job.priority_class not in rules.priorities:
        sentence = f"there is no PriorityClass {job.priority_class}{UNTIL_THERE}"
        return Standing("PriorityClassNotFound", sentence, ordered=False)
    return None


def over_quota(job: JobView, rules: Rules, now: float) -> Standing | None:
    """How a job stands that the ResourceQuotas of its namespace do not hold; None if they do."""
    namespace, refused = job.key.namespace, job.waits is not None and job.waits.refusal is not None
    quotas = rules.quotas.get(namespace, ())
    if not (quotas or refused):
        return None
    found = namespace_quota.barred(job, quotas, now, services=not rules.shared_address)
    if found is not None:
        return Standing("NamespaceQuota", found.sentence, ordered=False, until=found.until)
    if refused and job.key in rules.yielding.get(namespace, ()):
        return Standing("NamespaceQuota", namespace_quota.YIELDS, ordered=False)
    return None


def outdated(job: JobView, stands: Standing) -> bool:
    """Whether the numbers that a job was told are others now, besides how much is used."""
    same = job.told == stands.code == "NamespaceQuota"
    return same and not resource_quota.same(job.sentence, stands.sentence)


def _sent_back(job: JobView, now: float) -> Standing | None:
    waits = job.waits
    if waits is None or waits.refusal is not None:
        return None
    if waits.retry and waits.retry <= now:
        return None
    if waits.parked:
        sentence = "it was admitted again and again but never ran in time: it waits for its owner (torchq job resume)"
        return Standing("Parked", sentence, ordered=False, until=waits.retry)
    if waits.until > now:
        sentence = "it was admitted but did not run in time: it is tried again at status.queue.notBefore"
        return Standing("BackingOff", sentence, ordered=False, until=min(waits.until, waits.retry or waits.until))
    return None


def _told(job: JobView, rules: Rules) -> Standing | None:
    """What leaves it in the order."""
    if job.returning and draining(job.queue, rules):
        return Standing("QueueDrained", f"queue {job.queue} was drained: it goes first when the queue goes on")
    ceiling = rules.ceilings.get(job.queue, NOTHING)
    if not amounts.fits(job.charge, NOTHING, ceiling):
        return Standing("ExceedsQuota", explain.too_large(job.queue, job.charge, ceiling))
    return None
