"""The permissions of each account of torchq on the Kubernetes API: one table per account.

One rule: the tables are the only source. `deploy/rbac/` and `torchq rbac` are generated from these tables, processes
check their own table at the start, and a test compares the tables with the recorded requests of the code.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from coordinator.access.readers import ACCOUNT, READER_ACCOUNT
from crds.api_resources import (
    CONFIG_MAPS,
    EVENTS,
    GANG_QUEUES,
    LEASES,
    MODEL_VERSIONS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RECREATE_REQUESTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SCALE_INS,
    SCALE_OUTS,
    SERVICE_ACCOUNTS,
    SERVICES,
    SUBJECT_ACCESS_REVIEWS,
    TENANT_QUEUES,
    TOKEN_REVIEWS,
    TORCHJOBS,
    Resource,
)
from gang import backends


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """Verbs on one resource or subresource."""

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    name: str = ""
    """The only object that the rule covers; empty means all."""
    by_hand: tuple[str, ...] = ()
    """Verbs that torchq's code does not use: people with kubectl need them, or the API server itself requires them."""
    everywhere: tuple[str, ...] = ()
    """Verbs that are needed in every namespace, even if the account may write in some namespaces only."""
    optional: bool = False
    """Whether a process works without the permission, and does not check it at the start."""

    @property
    def all_verbs(self) -> tuple[str, ...]:
        """All verbs that are granted."""
        return self.verbs + self.by_hand

    @property
    def target(self) -> str:
        """The resource as RBAC names it, within its group."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The permissions of one kind of account."""

    name: str
    purpose: str
    rules: tuple[PolicyRule, ...] = ()
    """The rules for every namespace; for users, for each of their namespaces."""
    lease: tuple[PolicyRule, ...] = ()
    """The rules for the namespace of the Leases."""
    queue: tuple[PolicyRule, ...] = ()
    """The rules for a user's queue, unless a rule names another object."""
    caution: str = ""
    """What an admin who grants the role should know; it stands in the role itself."""
    option: str = ""
    """The option of `torchq rbac` that prints a role of single occasions; empty for a role of every installation."""

    @property
    def path(self) -> str:
        """The file of the role below deploy/rbac. Roles of single occasions are apart: `kubectl apply -f deploy/rbac`
        leaves them out."""
        return f"{'on-request/' if self.option else ''}{self.name}.yaml"

    @property
    def file(self) -> str:
        """The manifest that grants the role."""
        return f"deploy/rbac/{self.path}"

    @property
    def remedy(self) -> str:
        """The remedy for a missing permission, for the end of a message."""
        grants = "torchq rbac --tenant NAMESPACE" if self is USER else f"torchq rbac {self.option or self.name}"
        remedy = f"{self.file} grants what a {self.name} account needs: an admin runs `{grants} | kubectl apply -f -`"
        return remedy + (
            " (with --namespaces if workers may create pods in some namespaces only)" if self is WORKER else ""
        )

    @property
    def cluster_wide(self) -> tuple[PolicyRule, ...]:
        """The part of the rules that stays cluster-wide when the other rules are granted in some namespaces only."""
        return tuple(
            _filter_verbs(self.rules, lambda rule, verb: not rule.resource.namespaced or verb in rule.everywhere)
        )

    @property
    def by_namespace(self) -> tuple[PolicyRule, ...]:
        """The part of the rules that can be granted in some namespaces only."""
        return tuple(
            _filter_verbs(self.rules, lambda rule, verb: rule.resource.namespaced and verb not in rule.everywhere)
        )

    def all_rules(self) -> Iterator[PolicyRule]:
        """Yield all rules, whatever their scope."""
        yield from (*self.rules, *self.lease, *self.queue)


def _of_each(*resources: Resource, **rule: Any) -> Iterator[PolicyRule]:
    """Yield the same rule for each of some resources."""
    return (PolicyRule(resource=resource, **rule) for resource in resources)


def _filter_verbs(
    rules: tuple[PolicyRule, ...], is_included: Callable[[PolicyRule, str], bool]
) -> Iterator[PolicyRule]:
    """Yield the rules, each with its verbs that `is_included` accepts. Rules without such verbs are left out."""
    for rule in rules:
        verbs, by_hand = (tuple(v for v in verbs if is_included(rule, v)) for verbs in (rule.verbs, rule.by_hand))
        if verbs or by_hand:
            yield replace(rule, verbs=verbs, by_hand=by_hand)


LEASE = "torchq-coordinator"
"""The name of the leader's Lease."""
SERVICE = "torchq-coordinator"
"""The name of the coordinator's Service, unless the setting `service` names another one."""
RECORDER_LEASE = "torchq-recorder"
"""The name of the Lease by which recorders say up to when everything is recorded, and where they answer."""
RECORDER_SERVICE = "torchq-recorder"
"""The name of the recorders' Service, unless the setting `recorder_service` names another one."""
SYSTEM_NAMESPACE = "kube-system"
"""The namespace whose uid identifies the cluster (`queues.installation`)."""
_FOLLOW = ("list", "watch")
_POD_GROUPS = {kind.group: kind for kind in reversed(backends.KINDS)}.values()
"""One pod group kind per API group; RBAC does not know versions."""


def proxied(service: str) -> str:
    """Return a Service of torchq as the API server's proxy names it: protocol, name and port."""
    return f"http:{service}:http"


_ASK_COORDINATOR = (
    PolicyRule(resource=LEASES, name=LEASE, verbs=("get",)),
    PolicyRule(resource=SERVICES, subresource="proxy", name=proxied(SERVICE), verbs=("get",)),
)
"""The permissions to query a coordinator, directly or through the API server."""
_ASK = (
    *_ASK_COORDINATOR,
    PolicyRule(resource=LEASES, name=RECORDER_LEASE, verbs=("get",)),
    PolicyRule(resource=SERVICES, subresource="proxy", name=proxied(RECORDER_SERVICE), verbs=("get",)),
)
"""The permissions to query a coordinator and a recorder."""
_ABOUT_ALL = PolicyRule(resource=SERVICE_ACCOUNTS, subresource="token", name=READER_ACCOUNT, verbs=("create",))
"""The permission for the token that a command shows to coordinators and recorders, which then name the jobs of all
namespaces."""

COORDINATOR = Role(
    name="coordinator",
    purpose="`torchq coordinator`: watches the cluster, writes the status of queues and why jobs wait, and its Lease",
    rules=(
        # The verb get is needed where the cached job is older than one of its pods.
        PolicyRule(resource=TORCHJOBS, verbs=("get", *_FOLLOW)),
        PolicyRule(resource=TORCHJOBS, subresource="status", verbs=("patch",)),
        PolicyRule(resource=TENANT_QUEUES, verbs=_FOLLOW),
        PolicyRule(resource=TENANT_QUEUES, subresource="status", verbs=("patch",)),
        *_of_each(PRIORITY_CLASSES, NAMESPACES, RESOURCE_QUOTAS, PODS, NODES, verbs=_FOLLOW),
        *_of_each(SCALE_OUTS, SCALE_INS, *_POD_GROUPS, RECREATE_REQUESTS, verbs=_FOLLOW),
        # Without this permission, jobs are picked as if the queues of the gang scheduler had room.
        PolicyRule(resource=GANG_QUEUES, verbs=_FOLLOW, optional=True),
        # Who asks, and whose jobs the answer may name.
        *_of_each(TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS, verbs=("create",)),
    ),
    lease=(
        # RBAC cannot restrict create to a name.
        PolicyRule(resource=LEASES, verbs=("create",)),
        PolicyRule(resource=LEASES, name=LEASE, verbs=("get", "patch")),
    ),
)
WORKER = Role(
    name="worker",
    purpose="`torchq worker`: makes and deletes the pods, services and pod groups of jobs, writes their status",
    rules=(
        # Delete: needed for ttlSecondsAfterFinished. The permission is for all namespaces: a job whose namespace allows
        # no pods is read, too, and its status shows the refusal.
        PolicyRule(resource=TORCHJOBS, verbs=("get", "delete"), everywhere=("get",)),
        PolicyRule(resource=TORCHJOBS, subresource="status", verbs=("patch",), everywhere=("patch",)),
        PolicyRule(resource=TORCHJOBS, subresource="scale", verbs=("patch",)),
        # Delete: needed for ttlSecondsAfterFinished, and by the API server to change the owners of a request.
        *_of_each(SCALE_OUTS, SCALE_INS, verbs=("get", *_FOLLOW, "patch", "delete"), everywhere=_FOLLOW),
        *_of_each(SCALE_OUTS, SCALE_INS, subresource="status", verbs=("patch",)),
        # Some API servers require it to create an object that blocks the deletion of its owner.
        PolicyRule(resource=TORCHJOBS, subresource="finalizers", verbs=(), by_hand=("update",)),
        PolicyRule(resource=TENANT_QUEUES, verbs=_FOLLOW),
        # A worker takes no batches from the Redis of another cluster.
        PolicyRule(resource=NAMESPACES, name=SYSTEM_NAMESPACE, verbs=("get",)),
        # A worker caches the pods, groups and restarts of jobs in all namespaces, selected by a label.
        PolicyRule(resource=PODS, verbs=("get", "list", "watch", "create", "patch", "delete"), everywhere=_FOLLOW),
        # The log of a failed pod has the exception of the rank that failed first. Without the log, a job's message may
        # have no more than torchrun's exit code.
        PolicyRule(resource=PODS, subresource="log", verbs=("get",), optional=True),
        PolicyRule(resource=SERVICES, verbs=("get", "create", "delete")),
        # For jobs that refuse evictions. Delete: the budget that an earlier job of the same name has left.
        PolicyRule(resource=POD_DISRUPTION_BUDGETS, verbs=("get", "create", "delete")),
        PolicyRule(resource=NODES, verbs=_FOLLOW),
        PolicyRule(resource=EVENTS, verbs=("create",)),
        # The devices that claims of pods ask for. Without this permission these are not counted.
        *_of_each(RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, verbs=("get",), optional=True),
        *_of_each(RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, verbs=("list",), optional=True),
        # Volcano says only in Events why it does not let a group without pods in.
        PolicyRule(resource=EVENTS, verbs=("list",), optional=True),
        # These kinds exist only where a gang scheduler is installed.
        *_of_each(*_POD_GROUPS, verbs=("get", *_FOLLOW, "create", "patch", "delete"), everywhere=_FOLLOW),
        PolicyRule(resource=GANG_QUEUES, verbs=("get",)),
        PolicyRule(resource=RECREATE_REQUESTS, verbs=("get", "list", "watch", "create", "delete"), everywhere=_FOLLOW),
        # The record of the model of a job. Get: needed where its name is taken. Without this permission jobs succeed
        # all the same.
        *(PolicyRule(resource=MODEL_VERSIONS, verbs=(verb,), optional=True) for verb in ("get", "create")),
    ),
    # A job whose time to live is over is deleted once its end is recorded. Without this permission no worker waits.
    lease=(PolicyRule(resource=LEASES, name=RECORDER_LEASE, verbs=("get",), optional=True),),
)
RECORDER = Role(
    name="recorder",
    purpose="`torchq recorder`: watches jobs, queues and pods for the history, and writes its Lease",
    rules=(
        *_of_each(TORCHJOBS, TENANT_QUEUES, PODS, verbs=_FOLLOW),
        # The database has the history of one cluster.
        PolicyRule(resource=NAMESPACES, name=SYSTEM_NAMESPACE, verbs=("get",)),
        # Who asks, and whose jobs the answer may name.
        *_of_each(TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS, verbs=("create",)),
        # What the pool has. The Service has another name in other releases, so no start may ask for this one.
        *(replace(rule, optional=True) for rule in _ASK_COORDINATOR),
    ),
    lease=(
        # RBAC cannot restrict create to a name.
        PolicyRule(resource=LEASES, verbs=("create",)),
        PolicyRule(resource=LEASES, name=RECORDER_LEASE, verbs=("get", "patch")),
    ),
)
DASHBOARD = Role(
    name="dashboard",
    purpose="`torchq dashboard serve`: watches jobs, and shows each visitor what the visitor may see",
    # Coordinators tell an account that may list all jobs about all jobs and queues. Whatever else is read or changed is
    # asked for with the token of the visitor.
    rules=(PolicyRule(resource=TORCHJOBS, verbs=_FOLLOW),),
)
USER = Role(
    name="user",
    purpose="people who submit jobs: TorchJobs of their namespace, with code, pods and logs; reads their queue",
    rules=(
        PolicyRule(resource=TORCHJOBS, verbs=("get", "list", "watch", "create", "patch", "delete")),
        # `kubectl scale` patches, too; with --current-replicas it reads and updates. A patch of the TorchJob could make
        # the same change.
        PolicyRule(resource=TORCHJOBS, subresource="scale", verbs=("patch",), by_hand=("get", "update")),
        *_of_each(SCALE_OUTS, SCALE_INS, verbs=("get", "create"), by_hand=(*_FOLLOW, "delete")),
        # `torchq model` and `torchq run --with-model`. Create: needed to record files that come from elsewhere.
        PolicyRule(resource=MODEL_VERSIONS, verbs=("list", "delete"), by_hand=("get", "create")),
        # Creating pods would bypass the queues, so the right is not granted; `submit` tries a dry run and works without
        # it. `job logs -f` follows new pods, and reads a pod again to know to which run an answer belongs.
        PolicyRule(resource=PODS, verbs=("get", "list", "watch")),
        PolicyRule(resource=PODS, subresource="log", verbs=("get",)),
        PolicyRule(resource=EVENTS, verbs=("list", "create")),
        # `torchq run` keeps the code of jobs in ConfigMaps. Delete: some API servers require it to change the owners of
        # an object; the garbage collection deletes them with their last job.
        PolicyRule(resource=CONFIG_MAPS, verbs=("get", "create", "patch"), by_hand=("delete",)),
        # `job show` uses them for a job that waits for a ResourceQuota.
        PolicyRule(resource=RESOURCE_QUOTAS, verbs=("list",)),
        *_of_each(*_POD_GROUPS, verbs=("list",)),
        # The token that a command shows to coordinators and recorders. The account has no other rights than its users.
        PolicyRule(resource=SERVICE_ACCOUNTS, subresource="token", name=ACCOUNT, verbs=("create",)),
    ),
    queue=(PolicyRule(resource=TENANT_QUEUES, verbs=("get",)), *_ASK),
    caution="Users of a namespace may read, change and delete all of its ConfigMaps, also those of other applications: "
    "torchq run keeps the code of jobs in ConfigMaps, and no rule can name only these. Where that is too much, set "
    "code_store to a folder that all nodes see, and remove the rule on configmaps.",
)
QUEUE_ADMIN = Role(
    name="queue-admin",
    purpose="people who give queues their weights and quotas: writes TenantQueues, only reads TorchJobs",
    option="--queue-admin NAME",
    rules=(
        PolicyRule(resource=TENANT_QUEUES, verbs=("get", "list", "create", "patch", "delete"), by_hand=("watch",)),
        # `queue delete` refuses a queue that unfinished jobs name.
        PolicyRule(resource=TORCHJOBS, verbs=("list",)),
        PolicyRule(resource=EVENTS, verbs=("create",)),
        _ABOUT_ALL,
        *_ASK,
    ),
)
DOCTOR = Role(
    name="doctor",
    purpose="`torchq doctor`: reads the cluster; --fix asks the leader, through its Lease, to rebuild the queues",
    rules=(
        *_of_each(TORCHJOBS, TENANT_QUEUES, PRIORITY_CLASSES, NAMESPACES, verbs=("list",)),
        # `torchq redis adopt` names the cluster.
        PolicyRule(resource=NAMESPACES, name=SYSTEM_NAMESPACE, verbs=("get",)),
        *_of_each(RESOURCE_QUOTAS, PODS, NODES, verbs=("list",)),
        # How gang schedulers are set up.
        *_of_each(*_POD_GROUPS, GANG_QUEUES, verbs=("list",), optional=True),
        # Which code no job uses any more. Only metadata are asked for; no rule can say so, or name the label.
        PolicyRule(resource=CONFIG_MAPS, verbs=("list",)),
    ),
    lease=(PolicyRule(resource=LEASES, name=LEASE, verbs=("get", "patch")),),
)
READER = Role(
    name="reader",
    purpose="answers that name the jobs of all namespaces: admins get tokens of this account, which lists TorchJobs",
    # Coordinators and recorders look whether the account has the right; nobody else uses it.
    rules=(PolicyRule(resource=TORCHJOBS, verbs=(), by_hand=("list",)),),
)
RESTORE = Role(
    name="restore",
    purpose="`torchq restore`: creates TenantQueues, TorchJobs and their code, writes the status of finished jobs",
    option="--restore",
    rules=(
        PolicyRule(resource=TENANT_QUEUES, verbs=("list", "create")),
        # Patch: a finished job is created suspended. Get: needed where a worker has written its status meanwhile.
        PolicyRule(resource=TORCHJOBS, verbs=("get", "list", "create", "patch")),
        PolicyRule(resource=TORCHJOBS, subresource="status", verbs=("patch",)),
        PolicyRule(resource=MODEL_VERSIONS, verbs=("list", "create")),
        # The code of unfinished jobs. Delete: see the role of users.
        PolicyRule(resource=CONFIG_MAPS, verbs=("get", "create", "patch"), by_hand=("delete",)),
        # Whether a coordinator can lead on the Redis that it finds.
        PolicyRule(resource=NAMESPACES, name=SYSTEM_NAMESPACE, verbs=("get",)),
        _ABOUT_ALL,
        *_ASK_COORDINATOR,
    ),
)
_PROCESSES = (COORDINATOR, WORKER, RECORDER, DASHBOARD)
ROLES = {role.name: role for role in (*_PROCESSES, USER, QUEUE_ADMIN, DOCTOR, READER, RESTORE)}
STANDING = {name: role for name, role in ROLES.items() if not role.option}
"""The roles that an installation has at all times."""
