"""What each account of torchq may ask of the Kubernetes API: a table for each.

One rule: the tables alone say so. `deploy/rbac/` and `torchq rbac` are made from them, coordinator and workers check
theirs when they start, and a test records what the code really asks and compares both ways.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from crds.api_resources import (
    EVENTS,
    GANG_QUEUES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RECREATE_REQUESTS,
    RESOURCE_QUOTAS,
    SERVICES,
    TENANT_QUEUES,
    TORCHJOBS,
    Resource,
)
from gang import backends


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Verbs on one resource or subresource."""

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    name: str = ""
    """Only the object of this name; empty: any."""
    by_hand: tuple[str, ...] = ()
    """Verbs that no code of ours uses: for kubectl in the hands of people, or asked for by the API server itself."""
    everywhere: tuple[str, ...] = ()
    """Verbs that are needed in every namespace even where an account may write in some namespaces only."""
    optional: bool = False
    """Whether a process works without it, and does not ask for it when it starts."""

    @property
    def all_verbs(self) -> tuple[str, ...]:
        """What is granted."""
        return self.verbs + self.by_hand

    @property
    def target(self) -> str:
        """The resource as RBAC names it, within its group."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What one kind of account may do."""

    name: str
    purpose: str
    rules: tuple[Rule, ...] = ()
    """In every namespace; for users, in each namespace they are given."""
    lease: tuple[Rule, ...] = ()
    """In the namespace of the leader's Lease."""
    queue: tuple[Rule, ...] = ()
    """On the queue they are given, unless it names another object."""

    @property
    def file(self) -> str:
        """The manifest that grants it."""
        return f"deploy/rbac/{self.name}.yaml"

    @property
    def remedy(self) -> str:
        """What to do about a permission that is missing, for the end of a message."""
        grants = "torchq rbac --tenant NAMESPACE" if self is USER else f"torchq rbac {self.name}"
        remedy = f"{self.file} grants what a {self.name} account needs: an admin runs `{grants} | kubectl apply -f -`"
        return remedy + (" (with --namespaces where workers may make pods in some only)" if self is WORKER else "")

    @property
    def cluster_wide(self) -> tuple[Rule, ...]:
        """Of its rules, what is granted in the whole cluster where all else is granted in some namespaces only."""
        return tuple(
            _filter_verbs(self.rules, lambda rule, verb: not rule.resource.namespaced or verb in rule.everywhere)
        )

    @property
    def by_namespace(self) -> tuple[Rule, ...]:
        """The rest of its rules."""
        return tuple(
            _filter_verbs(self.rules, lambda rule, verb: rule.resource.namespaced and verb not in rule.everywhere)
        )

    def each(self) -> Iterator[Rule]:
        """Its rules, wherever they hold."""
        yield from (*self.rules, *self.lease, *self.queue)


def _filter_verbs(rules: tuple[Rule, ...], is_included: Callable[[Rule, str], bool]) -> Iterator[Rule]:
    """The rules, each with those of its verbs that are wanted."""
    for rule in rules:
        verbs, by_hand = (tuple(v for v in verbs if is_included(rule, v)) for verbs in (rule.verbs, rule.by_hand))
        if verbs or by_hand:
            yield replace(rule, verbs=verbs, by_hand=by_hand)


LEASE = "torchq-coordinator"
"""The name of the leader's Lease."""
SERVICE = "http:torchq-coordinator:http"
"""The coordinator's service, as the API server's proxy names it: protocol, name and port."""
_FOLLOW = ("list", "watch")
_POD_GROUPS = {each.group: each for each in reversed(backends.KINDS)}.values()
"""One of each group, whatever its version."""
_ASK = (
    Rule(resource=LEASES, name=LEASE, verbs=("get",)),
    Rule(resource=SERVICES, subresource="proxy", name=SERVICE, verbs=("get",)),
)
"""To ask a coordinator about the queues: where it answers, or through the API server. It tells of all queues."""

COORDINATOR = Role(
    name="coordinator",
    purpose="`torchq coordinator`: watches everything, writes how queues do and why jobs wait, and its own Lease",
    rules=(
        # Get: a job that is older here than one of its pods.
        Rule(resource=TORCHJOBS, verbs=("get", *_FOLLOW)),
        Rule(resource=TORCHJOBS, subresource="status", verbs=("patch",)),
        Rule(resource=TENANT_QUEUES, verbs=_FOLLOW),
        Rule(resource=TENANT_QUEUES, subresource="status", verbs=("patch",)),
        Rule(resource=PRIORITY_CLASSES, verbs=_FOLLOW),
        Rule(resource=NAMESPACES, verbs=_FOLLOW),
        Rule(resource=RESOURCE_QUOTAS, verbs=_FOLLOW),
        Rule(resource=PODS, verbs=_FOLLOW),
        Rule(resource=NODES, verbs=_FOLLOW),
        *(Rule(resource=each, verbs=_FOLLOW) for each in (*_POD_GROUPS, RECREATE_REQUESTS)),
    ),
    lease=(
        # A create cannot be bound to a name.
        Rule(resource=LEASES, verbs=("create",)),
        Rule(resource=LEASES, name=LEASE, verbs=("get", "patch")),
    ),
)
WORKER = Role(
    name="worker",
    purpose="`torchq worker`: makes and deletes jobs' pods, services and pod groups, writes what became of jobs",
    rules=(
        # Delete: ttlSecondsAfterFinished. A job of a namespace in which no pods may be made is read, and told so.
        Rule(resource=TORCHJOBS, verbs=("get", "delete"), everywhere=("get",)),
        Rule(resource=TORCHJOBS, subresource="status", verbs=("patch",), everywhere=("patch",)),
        # Where the API server asks it of whoever makes an object that holds up its owner's deletion.
        Rule(resource=TORCHJOBS, subresource="finalizers", verbs=(), by_hand=("update",)),
        Rule(resource=TENANT_QUEUES, verbs=_FOLLOW),
        # A worker's caches hold the pods, groups and restarts of all namespaces: those of jobs, by a label.
        Rule(resource=PODS, verbs=("get", "list", "watch", "create", "patch", "delete"), everywhere=_FOLLOW),
        # The exception of the rank that failed first, of a pod that is to blame. Without it a job's message may say no
        # more than torchrun's exit code.
        Rule(resource=PODS, subresource="log", verbs=("get",), optional=True),
        Rule(resource=SERVICES, verbs=("get", "create", "delete")),
        Rule(resource=NODES, verbs=_FOLLOW),
        Rule(resource=EVENTS, verbs=("create",)),
        # Where they are installed.
        *(
            Rule(resource=each, verbs=("get", "list", "watch", "create", "patch", "delete"), everywhere=_FOLLOW)
            for each in _POD_GROUPS
        ),
        Rule(resource=GANG_QUEUES, verbs=("get",)),
        Rule(resource=RECREATE_REQUESTS, verbs=("get", "list", "watch", "create", "delete"), everywhere=_FOLLOW),
    ),
)
USER = Role(
    name="user",
    purpose="people who submit jobs: TorchJobs of their namespace, their pods and logs, their queue to look at",
    rules=(
        Rule(resource=TORCHJOBS, verbs=("get", "list", "create", "patch", "delete"), by_hand=("watch",)),
        # `kubectl scale` patches; with --current-replicas it reads first and updates. It changes nothing that a patch
        # of the TorchJob could not change.
        Rule(resource=TORCHJOBS, subresource="scale", verbs=(), by_hand=("get", "patch", "update")),
        # Whoever may make pods passes by the queues: `submit` tries a dry run of one, and does without.
        Rule(resource=PODS, verbs=("get", "list"), by_hand=("watch",)),
        Rule(resource=PODS, subresource="log", verbs=("get",)),
        Rule(resource=EVENTS, verbs=("list", "create")),
        # What `job show` says of a job that waits for one.
        Rule(resource=RESOURCE_QUOTAS, verbs=("list",)),
        *(Rule(resource=each, verbs=("list",)) for each in _POD_GROUPS),
    ),
    queue=(Rule(resource=TENANT_QUEUES, verbs=("get",)), *_ASK),
)
QUEUE_ADMIN = Role(
    name="queue-admin",
    purpose="people who give queues their weights and quotas: TenantQueues; TorchJobs only to look at",
    rules=(
        Rule(resource=TENANT_QUEUES, verbs=("get", "list", "create", "patch", "delete"), by_hand=("watch",)),
        # A queue that unfinished jobs name is not deleted.
        Rule(resource=TORCHJOBS, verbs=("list",)),
        Rule(resource=EVENTS, verbs=("create",)),
        *_ASK,
    ),
)
DOCTOR = Role(
    name="doctor",
    purpose="`torchq doctor`: looks at everything; --fix asks the leader, on its Lease, to build the queues anew",
    rules=(
        Rule(resource=TORCHJOBS, verbs=("list",)),
        Rule(resource=TENANT_QUEUES, verbs=("list",)),
        Rule(resource=PRIORITY_CLASSES, verbs=("list",)),
        Rule(resource=NAMESPACES, verbs=("list",)),
        Rule(resource=RESOURCE_QUOTAS, verbs=("list",)),
        Rule(resource=PODS, verbs=("list",)),
        Rule(resource=NODES, verbs=("list",)),
    ),
    lease=(Rule(resource=LEASES, name=LEASE, verbs=("get", "patch")),),
)
ROLES = {role.name: role for role in (COORDINATOR, WORKER, USER, QUEUE_ADMIN, DOCTOR)}
