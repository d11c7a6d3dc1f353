"""Whether a waiting job has its place in the order of its queue, and the reason that its status gives at once.

One rule: pure. The first row of the table that is true applies. A job that is out of the order blocks no other job.

    code                    in the order   true while
    Held                    no             its owner holds it
    QueueNotFound           no             the queue that it names does not exist and is not implied
    NotAllowed              no             the queue is not for its namespace, or not for the gang queue that it names
    ClaimsNotCounted        no             the queue's quota names devices, but not those that its resource claims ask
                                           for
    CountingClaims          no             no worker has counted the devices of its resource claims yet
    PriorityClassNotFound   no             the PriorityClass that it names does not exist
    TopologyNotFound        no             the label that its topology requires is no level of the installation
    NamespaceQuota          no             a ResourceQuota of its namespace has no room for its pods
    WaitingForGangQueue     no             its queue of the gang scheduler is closed, missing, or has no room for it
    PortTaken               no             another job has a port of the machine that it chose itself
    Parked                  no             it was admitted too often without running, and its owner has not resumed it
    BackingOff              no             it was admitted without running, and status.queue.notBefore is in the future
    WaitingForScheduler     no             its scheduler did not bind it, and nothing has changed until notBefore
    QueueDrained            yes            it ran when its queue was drained; it is first when the queue is open again
    ExceedsQuota            yes            quota, cohort and pool can never give what it asks for at least

Where queues are implicit, a namespace implies two of them: the queue of its own name, and `default`, which all
namespaces share. No other name makes a queue, because each queue has a share of its own.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from coordinator.cache.routing_rules import DEFAULT_QUEUE, RoutingRules, is_implied
from coordinator.cache.views import JobView
from coordinator.routing import chosen_ports, gang_queues, namespace_quota
from coordinator.routing.chosen_ports import PortClaim
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING
from crds.tenantqueue import TenantQueueSpec
from crds.torchjob import claims, resource_quota
from crds.torchjob.demand import HostPort
from queues.picking import explain

Code = Literal[
    "Held",
    "QueueNotFound",
    "NotAllowed",
    "ClaimsNotCounted",
    "CountingClaims",
    "PriorityClassNotFound",
    "TopologyNotFound",
    "NamespaceQuota",
    "WaitingForGangQueue",
    "PortTaken",
    "Parked",
    "BackingOff",
    "WaitingForScheduler",
    "QueueDrained",
    "ExceedsQuota",
]
CODES = frozenset(get_args(Code))


NO_LEVEL: Literal["TopologyNotFound"] = "TopologyNotFound"
"""The code of a job that requires a label of nodes which is no level."""
UNTIL_CREATED = ": it waits until there is one"
"""The end of a sentence about a queue or a PriorityClass that does not exist."""
COUNTING = "its resource claims are not counted yet: each claim and template must exist, and workers may read them"
"""The sentence about a job whose claimed devices no worker has counted."""
NOT_BOUND = "its scheduler did not bind it while others waited: it is tried again when something has changed"
"""The sentence about a job whose status has no words of its scheduler."""
MOST_COMPARED = 256
"""The most queue names that are compared with an unknown name."""
MOST_NAMED = 5
"""The most queues that a sentence names."""


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Whether one job has its place in the order of its queue, and the reason if the job has no place."""

    code: Code | Literal[""] = ""
    sentence: str = ""
    """The reason for people, without numbers that change all the time."""
    ordered: bool = True
    """Whether the job has its place in the order."""
    until: float = 0.0
    """When time alone changes the eligibility, in seconds since 1970; 0: never."""


ELIGIBLE = Eligibility()


def of(job: JobView, rules: RoutingRules, now: float) -> Eligibility:
    """Return the eligibility of a job that is not admitted; `now` is in seconds since 1970."""
    if job.held:
        return Eligibility("Held", "held back by its owner (schedulingPolicy.hold): torchq job resume", ordered=False)
    obstacle = _admin_block(job, rules) or outside_block(job, rules, now) or port_wait(job, rules)
    return obstacle or _back_off(job, rules, now) or _remark(job, rules) or ELIGIBLE


def with_hint(eligibility: Eligibility, job: JobView, rules: RoutingRules) -> Eligibility:
    """Return the eligibility. For an unknown queue, its sentence also has a solution and similar queue
    names."""
    if eligibility.code != "QueueNotFound":
        return eligibility
    queue, key = job.queue, job.key
    todo = f"create it (torchq queue create {queue}) or name another one (torchq job move {key.name} QUEUE)"
    return replace(
        eligibility, sentence=f"{eligibility.sentence}; {todo}; {suggest_queues(queue, key.namespace, rules)}"
    )


def suggest_queues(queue: str, namespace: str, rules: RoutingRules) -> str:
    """Return a sentence with the queues whose names are similar to an unknown name, or else with a few other queues.

    With many queues, this takes some milliseconds.
    """
    names = {name for name in rules.queues if is_allowed(name, namespace, rules)}
    if rules.implicit:
        names |= {name for name in (namespace, DEFAULT_QUEUE) if is_usable(name, namespace, rules)}
    ranked = sorted(names, key=lambda name: (name[:1] != queue[:1], name))[:MOST_COMPARED]
    similar = difflib.get_close_matches(queue, ranked, MOST_NAMED)
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    some = ", ".join(sorted(names)[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    return f"namespace {namespace} may use {some}" if names else f"there is no queue for namespace {namespace}"


def priority(job: JobView, rules: RoutingRules) -> int:
    """Return the priority of a job: its own, or the priority of its PriorityClass."""
    return rules.priorities.get(job.priority_class, 0) if job.priority_class else job.priority


def is_open(queue: str, rules: RoutingRules) -> bool:
    """Return whether jobs are picked from a queue."""
    spec = rules.queues.get(queue)
    return spec is None or spec.stop_policy == "None"


def is_draining(queue: str, rules: RoutingRules) -> bool:
    """Return whether a queue drains, so that its jobs have to release their room."""
    spec = rules.queues.get(queue)
    return spec is not None and spec.stop_policy == "HoldAndDrain"


def is_allowed(queue: str, namespace: str, rules: RoutingRules) -> bool:
    """Return whether there is a TenantQueue of this name that the jobs of the namespace may use."""
    spec = rules.queues.get(queue)
    return spec is not None and spec.allows(namespace, rules.namespaces.get(namespace, {}))


def is_usable(queue: str, namespace: str, rules: RoutingRules) -> bool:
    """Return whether the jobs of the namespace may use a queue of this name, with or without a TenantQueue."""
    return is_allowed(queue, namespace, rules) or (
        queue not in rules.queues and _is_usable_without_object(queue, namespace, rules)
    )


def _is_usable_without_object(queue: str, namespace: str, rules: RoutingRules) -> bool:
    return rules.implicit is None or (rules.implicit and is_implied(queue, namespace))


def is_withdrawn(queue: str, namespace: str, rules: RoutingRules) -> bool:
    """Return whether an admin has taken the queue from the namespace: the queue is drained, deleted or closed to the
    namespace.
    """
    return is_draining(queue, rules) or not is_usable(queue, namespace, rules)


def _admin_block(job: JobView, rules: RoutingRules) -> Eligibility | None:
    """Return the reason that keeps a job out of the order until an admin changes it; None if there is no reason."""
    queue, namespace, spec = job.queue, job.key.namespace, rules.queues.get(job.queue)
    if spec is None and not _is_usable_without_object(queue, namespace, rules):
        sentence = f"there is no TenantQueue {queue}{UNTIL_CREATED}"
        return Eligibility("QueueNotFound", sentence, ordered=False)
    if spec is not None and not is_allowed(queue, namespace, rules):
        sentence = f"queue {queue} is not for namespace {namespace} (its spec.namespaces and namespaceSelector)"
        return Eligibility("NotAllowed", sentence, ordered=False)
    if spec is not None and not spec.allows_gang_queue(job.gang_queue):
        return Eligibility("NotAllowed", gang_queue_refusal(queue, job.gang_queue, spec), ordered=False)
    if job.claims and spec is not None:
        if refusal := claims.refusal(queue, spec.quota_amounts, () if job.uncounted else job.charge):
            return Eligibility("ClaimsNotCounted", f"{job.claims}: {refusal}", ordered=False)
        if job.uncounted and claims.devices(spec.quota_amounts):
            return Eligibility("CountingClaims", f"{job.claims}: {COUNTING}", ordered=False)
    if job.priority_class and job.priority_class not in rules.priorities:
        sentence = f"there is no PriorityClass {job.priority_class}{UNTIL_CREATED}"
        return Eligibility("PriorityClassNotFound", sentence, ordered=False)
    if job.gang is not None and (refusal := topology_refusal(job.gang.required, rules)):
        return Eligibility(NO_LEVEL, f"topology.required: {refusal}", ordered=False)
    return None


def topology_refusal(label: str, rules: RoutingRules) -> str:
    """Return the sentence about a label of nodes that is no level of the installation; empty if the label is one, or if
    there is no label."""
    if not label or rules.topology is None or label in rules.topology:
        return ""
    if not rules.topology:
        return f"{label} has no effect here: an admin has to set pool: nodes, and name the label in topology_labels"
    return f"{label} is none of the levels {', '.join(rules.topology)} (the setting topology_labels)"


def gang_queue_refusal(queue: str, gang_queue: str, spec: TenantQueueSpec) -> str:
    """Return the sentence about a job that names a queue of the gang scheduler which its queue does not allow."""
    named = ", ".join(spec.gang_queues[:MOST_NAMED]) + (", ..." if len(spec.gang_queues) > MOST_NAMED else "")
    return f"jobs of queue {queue} may not name gangQueue {gang_queue} (its spec.gangQueues: {named})"


def outside_block(job: JobView, rules: RoutingRules, now: float) -> Eligibility | None:
    """Return the eligibility of a job for which limits outside of torchq have no room: the ResourceQuotas of its
    namespace, and its queue of the gang scheduler. The result is None if these limits have room."""
    block = quota_block(job, rules, now)
    if block is not None or rules.gang_rooms is None:
        return block
    sentence = gang_queues.shortage(job, job.least_charge, rules)
    return Eligibility("WaitingForGangQueue", sentence, ordered=False) if sentence else None


def quota_block(job: JobView, rules: RoutingRules, now: float) -> Eligibility | None:
    """Return the eligibility of a job for which the ResourceQuotas of its namespace have no room. The result is None if
    these limits have room.
    """
    namespace, refused = job.key.namespace, job.waits is not None and job.waits.refusal is not None
    quotas = rules.quotas.get(namespace, ())
    if not (quotas or refused):
        return None
    block = namespace_quota.find_block(job, quotas, now, services=not rules.shared_address)
    if block is not None:
        return Eligibility("NamespaceQuota", block.sentence, ordered=False, until=block.until)
    if refused and job.key in rules.yielding.get(namespace, ()):
        return Eligibility("NamespaceQuota", namespace_quota.YIELDS, ordered=False)
    return None


def port_block(key: JobKey, chosen: Iterable[HostPort], rules: RoutingRules) -> Eligibility | None:
    """Return the eligibility of a job with a port that another job has; None if no other job has a port of the job."""
    for port in sorted(chosen) if rules.ports else ():
        owner = chosen_ports.taken_by(port, key, rules.ports)
        if owner is not None:
            is_own = owner.namespace == key.namespace
            holder = f"job {owner.namespace}/{owner.name}" if is_own else "a job of another team"
            sentence = f"port {port.port} is taken by {holder}"
            return Eligibility("PortTaken", sentence, ordered=False)
    return None


def port_wait(job: JobView, rules: RoutingRules) -> Eligibility | None:
    """Return the eligibility of a waiting job that does not own all ports that it chose; None if the job owns them.

    A job that was not compared with the others yet is out of the order without a reason, for a moment.
    """
    block = port_block(job.key, job.ports, rules)
    if block is None and rules.shared_address and not job.ports <= rules.ports.keys():
        return Eligibility(ordered=False)
    return block


def port_claim(job: JobView, rules: RoutingRules, now: float, *, occupies: bool) -> PortClaim | None:
    """Return the claim of a job on the ports that it chose; None if the job neither holds room nor waits for room.

    `occupies` is whether pods of the job hold room.
    """
    holds = occupies or (job.admission is not None and not job.finished)
    gone = job.finished or job.stopped or job.deleting or job.held
    if not job.ports or (gone and not holds):
        return None
    can_go = is_open(job.queue, rules) and of(replace(job, ports=frozenset()), rules, now).ordered
    return PortClaim(job.key, job.ports, holds, can_go, (job.submitted, job.sequence))


def is_outdated(job: JobView, code: str, sentence: str) -> bool:
    """Return whether the status shows another queue, or other numbers or names beside a reason. A change of the used
    amount alone is ignored."""
    if job.waits is not None and job.waits.queue not in ("", job.queue):
        return True
    if job.reason == code == "PortTaken":
        return job.reason_message != sentence
    is_same_code = job.reason == code and code in (namespace_quota.CODE, gang_queues.CODE)
    return is_same_code and not resource_quota.same_except_usage(job.reason_message, sentence)


def _back_off(job: JobView, rules: RoutingRules, now: float) -> Eligibility | None:
    waits = job.waits
    if waits is None or waits.refusal is not None:
        return None
    if waits.retry and waits.retry <= now:
        return None
    if waits.parked:
        sentence = "it was admitted again and again but never ran in time: it waits for its owner (torchq job resume)"
        return Eligibility("Parked", sentence, ordered=False, until=waits.retry)
    if waits.until > now and waits.waits_for_scheduler:
        if job.key in rules.tried_again:
            return None
        until = min(waits.until, waits.retry or waits.until)
        return Eligibility("WaitingForScheduler", job.reason_message or NOT_BOUND, ordered=False, until=until)
    if waits.until > now:
        sentence = "it was admitted but did not run in time: it is tried again at status.queue.notBefore"
        return Eligibility("BackingOff", sentence, ordered=False, until=min(waits.until, waits.retry or waits.until))
    return None


def _remark(job: JobView, rules: RoutingRules) -> Eligibility | None:
    """Return an eligibility with a reason that leaves the job in the order; None if there is no such reason."""
    if job.returning and is_draining(job.queue, rules):
        return Eligibility("QueueDrained", f"queue {job.queue} was drained: it goes first when the queue goes on")
    ceiling = rules.ceilings.get(job.queue, NOTHING)
    if not amounts.fits(job.least_charge, NOTHING, ceiling):
        return Eligibility("ExceedsQuota", explain.too_large_message(job.queue, job.least_charge, ceiling))
    return None
