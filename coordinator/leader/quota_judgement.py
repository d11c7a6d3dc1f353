"""The judgement which jobs are kept out of the order of their queues by ResourceQuotas of their namespaces.

One rule: a namespace is judged as a whole, because its jobs compete for the same ResourceQuotas.
"""

from collections.abc import Callable
from functools import partial

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.watches import Watches
from coordinator.routing import eligibility, growth, namespace_quota, route
from crds.keys import JobKey


def judge_due(watches: Watches, rules: Callable[[], RoutingRules], clock: Callable[[], float]) -> None:
    """Judge each namespace whose jobs or ResourceQuotas changed. Mark the jobs for which the result has changed."""
    for namespace, keys in watches.quota_jobs.take_due():
        jobs = [job for key in keys if (job := watches.job(key)) is not None]
        before, now = rules(), clock()
        quotas = before.quotas.get(namespace, ())
        yielding = namespace_quota.yielding_jobs(
            jobs,
            quotas,
            now,
            services=not before.shared_address,
            arrived=partial(_occupying_pods, watches),
            place=partial(route.sort_key, rules=before),
        )
        watches.rule_watches.set_yielding(namespace, yielding)
        after = rules()
        blocked = frozenset(
            job.key
            for job in jobs
            if (job.admission is None or growth.missing(job))
            and eligibility.quota_block(growth.quota_view(job), after, now)
        )
        watches.mark(watches.quota_jobs.record(namespace, blocked, limited=bool(quotas)))


def _occupying_pods(watches: Watches, key: JobKey) -> int:
    return sum(pod.occupies for pod in watches.pods.indexed(key.uid))
