"""The findings of `torchq doctor`: every kind of disagreement between cluster, queues and RQ, and its remedy.

One rule: a message contains what distinguishes a finding from a later one about the same object (a token, an attempt,
an amount) and nothing that changes by itself, so that the findings of two checks can be compared.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crds.resources.amounts import PODS
from queues.values import QueueSpec

FIX = "torchq doctor --fix"
REPAIR = f"{FIX} (the leader rebuilds the queues from the cluster)"
LEADER = "start a coordinator, or see its log; /readyz?verbose names what is failing"
WORKERS = "start workers (torchq worker), or see their logs"
VERSIONS = "end the upgrade or take it back (docs/upgrading.md); the log of each worker names its Redis and its version"
OBJECTS = "correct or delete the object; the process skips this object only, and its log has the details"
JOBS = (
    "correct or delete the job; delete it if its status cannot be written either: its spec exceeds the bounds of "
    "the definition, and the API server is older than Kubernetes 1.30"
)
LIMITS = (
    "write the limit as jobs ask for it, as memory=512Mi, or by another name: "
    "torchq queue set-quota QUEUE nvidia.com/gpu=8 --unset gpu"
)
KUBELETS = (
    "set crashLoopBackOff.maxContainerRestartPeriod: 1s in the kubelet's configuration, or in_place: recreate for the "
    "workers (docs/operators.md)"
)
CLEANING = f"{FIX}, or wait for RQ's own cleaning; the keys become ready again when their leases end"

REDIS = "change the server as the message says, or name another one; coordinators wait meanwhile (docs/redis.md)"

REMEDIES = {
    # the processes
    "no-lease": LEADER,
    "no-leader": LEADER,
    "lease-silent": LEADER,
    "no-workers": WORKERS,
    "idle-workers": VERSIONS,
    "wrong-clock": "set the clock of that machine (timedatectl, chronyc tracking); the log of its worker names it",
    # the store as a whole
    "unfit-redis": REDIS,
    "foreign-store": "see docs/redis.md; `torchq redis adopt` shows whose the queues are",
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
    # pods
    "foreign-attempt-pod": f"{REPAIR}; a worker deletes the pod then",
    "orphan-pod": f"{REPAIR}; a worker deletes the pod then",
    "stray-pod": "kubectl delete pod; somebody has deleted the job with --cascade=orphan, or made the pod by hand",
    # objects
    "stray-code": "kubectl delete configmap; a client that was killed, or a backup, has left it",
    "edited-status": "find out who does so: a status is for torchq to write, and workers write what is true again",
    "skipped-object": OBJECTS,
    "unreadable-object": OBJECTS,
    "ineffective-limit": LIMITS,
    "invalid-job": JOBS,
    # nodes
    "slow-restarts": KUBELETS,
    "split-gang": "check the gang scheduler as the message says; the job's healthy pods run on",
    "gang-kind-missing": "install the gang scheduler, or have the API server serve the kind (docs/gang-schedulers.md)",
    "gang-scheduler-silent": "start the scheduler, or name another one",
    "gang-gate-off": "set the feature gates of kube-scheduler (docs/gang-schedulers.md)",
    "gang-queue": "create or open it in the gang scheduler, or name another one (torchq queue set-gang-queues)",
    "gang-scheduler-name": "set gang_scheduler_name, or schedulerName in the templates",
    # RQ and Redis
    "foreign-rq-job": f"{FIX} removes it; find out who may write to Redis",
    "failed-batch": CLEANING,
    "orphan-batch": CLEANING,
    "broken-key": REPAIR,
    "unknown-key": f"{FIX} removes it; find out who may write to Redis",
    "foreign-keys": "give torchq a Redis database of its own; --fix leaves these alone",
}
"""The remedy of each code."""

GANG_SETUP = ("gang-kind-missing", "gang-scheduler-silent", "gang-gate-off", "gang-queue", "gang-scheduler-name")
"""Codes about how gang schedulers are set up."""
HARMLESS = frozenset(
    (
        "failed-batch",
        "orphan-batch",
        "foreign-keys",
        "slow-restarts",
        "split-gang",
        *GANG_SETUP,
        "stray-pod",
        "stray-code",
        "edited-status",
    )
)
"""Codes that are no disagreement: leases recover the work, the keys or objects do not belong to torchq any more,
restarts in place take longer than they need to, a gang scheduler binds pods singly or is not set up, or workers have
corrected a status."""

WITHOUT_LEADER = frozenset(("no-lease", "no-leader", "lease-silent"))
"""Codes that mean that no leader can repair anything."""
NOT_REPAIRABLE = frozenset(code for code, remedy in REMEDIES.items() if FIX not in remedy)
"""Codes that a rebuild of the queues does not change: their remedies do not name it."""


MOST_QUEUES = 3
"""The most queues that a note names."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One disagreement of cluster, queues and RQ. Findings of two checks are equal only if nothing has changed."""

    code: str
    subject: str
    """The job key, queue, Redis key, pod or RQ job."""
    message: str

    @property
    def remedy(self) -> str:
        """The remedy for this kind of finding."""
        return REMEDIES[self.code]

    @property
    def is_harmless(self) -> bool:
        """Whether the finding is no disagreement and needs no remedy."""
        return self.code in HARMLESS


def notes(queues: Iterable[QueueSpec]) -> Iterator[str]:
    """Yield the facts about the tenant queues that an admin may want to know, although they may be intended."""
    if names := sorted(queue.name for queue in queues if PODS not in queue.quota):
        more = f" and {len(names) - MOST_QUEUES} more" if len(names) > MOST_QUEUES else ""
        pods = "pods that request nothing can fill the nodes (torchq queue set-quota QUEUE pods=100)"
        yield f"no quota of pods limits {', '.join(names[:MOST_QUEUES])}{more}: {pods}"
