"""What `torchq doctor` can find: every kind of disagreement between cluster, queues and RQ, and what mends it.

One rule: pure values. A message holds what tells this disagreement from a later one of the same thing (a token, an
attempt, an amount) and nothing that moves by itself, so that two looks can be compared.
"""

from dataclasses import dataclass

REPAIR = "torchq doctor --fix (the leader builds the queues anew from the cluster)"
LEADER = "start a coordinator, or see its log; /readyz says what is failing"
WORKERS = "start workers (torchq worker), or see their logs"
OBJECTS = "correct or delete the object; the log of the process that skips it says more, and it skips nothing else"
JOBS = (
    "correct or delete the job; delete it where its status cannot be written either: its spec is beyond the bounds of "
    "the definition, and the API server is older than Kubernetes 1.30"
)
LIMITS = "name the limit as jobs ask for it: torchq queue set-quota QUEUE nvidia.com/gpu=8 --unset gpu"
CLEANING = "torchq doctor --fix, or RQ's own cleaning in time; its keys come back when their leases end"

MENDS = {
    # who works at all
    "no-lease": LEADER,
    "no-leader": LEADER,
    "lease-silent": LEADER,
    "no-workers": WORKERS,
    # the store as a whole
    "store-lost": f"{REPAIR}; a leader that reaches Redis does so by itself",
    "rebuild-unfinished": f"{REPAIR}; a leader that reaches Redis does so by itself",
    "epoch-differs": REPAIR,
    # charges
    "orphan-reservation": REPAIR,
    "missing-reservation": REPAIR,
    "wrong-reservation": REPAIR,
    "unseen-pick": REPAIR,
    "leaked-charge": REPAIR,
    "wrong-port": REPAIR,
    # waiting
    "missing-entry": REPAIR,
    "stray-entry": REPAIR,
    "wrong-entry": REPAIR,
    "misplaced-entry": REPAIR,
    "wrong-settings": REPAIR,
    # work
    "stuck-lease": f"{REPAIR}; if it comes back: {LEADER}",
    "lost-lease": REPAIR,
    "stray-lease": REPAIR,
    "stuck-key": REPAIR,
    "stuck-tenant": REPAIR,
    "wrong-ready-count": REPAIR,
    "stray-threads": REPAIR,
    # pods
    "foreign-attempt-pod": f"{REPAIR}; a worker deletes the pod then",
    "orphan-pod": f"{REPAIR}; a worker deletes the pod then",
    # objects
    "skipped-object": OBJECTS,
    "unreadable-object": OBJECTS,
    "ineffective-limit": LIMITS,
    "invalid-job": JOBS,
    # RQ and Redis
    "foreign-rq-job": "torchq doctor --fix removes it; find out who may write to Redis",
    "failed-batch": CLEANING,
    "orphan-batch": CLEANING,
    "broken-key": REPAIR,
    "unknown-key": "torchq doctor --fix removes it; find out who may write to Redis",
    "foreign-keys": "give torchq a Redis database of its own; --fix leaves these alone",
}
"""Code -> what mends it."""

HARMLESS = frozenset(("failed-batch", "orphan-batch", "foreign-keys"))
"""Worth knowing, but nothing disagrees: what died was taken over by leases, or is not ours."""

LEADERLESS = frozenset(("no-lease", "no-leader", "lease-silent"))
"""Nobody is there who could mend anything."""
NOT_MENDED = LEADERLESS | {
    "no-workers",
    "foreign-keys",
    "skipped-object",
    "unreadable-object",
    "ineffective-limit",
    "invalid-job",
}
"""What a rebuild of the queues does not change."""


@dataclass(frozen=True, slots=True, order=True)
class Disagreement:
    """One thing on which cluster, queues and RQ do not agree. Equal in two looks only if nothing about it changed."""

    code: str
    subject: str
    """The job key, queue, Redis key, pod or RQ job it is about."""
    message: str

    @property
    def mends(self) -> str:
        """What to do about it."""
        return MENDS[self.code]

    @property
    def harmless(self) -> bool:
        """Whether it is only worth knowing."""
        return self.code in HARMLESS
