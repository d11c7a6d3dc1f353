"""The settings of a worker's reconciles.

One rule: one frozen object, created once by the wiring. A value that an admin sets has the name of its setting.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from crds.api_resources import Resource
from gang import backends
from gang.backend import Backend

ASKS_PER_WRITE = 4
"""How many pods a process asks for something, for each one that it creates at the same time: a patch of a pod costs
little, and is mostly waiting."""


@dataclass(frozen=True, slots=True)
class ReportAccess:
    """How the pods of a job report about their training."""

    url: str
    """The URL of the coordinators' port for reports."""
    token: Callable[[str], str] = field(repr=False)
    """A function that returns the token of the job with a uid."""
    kubeflow_progress: bool = True
    """Whether pods get the variables of Kubeflow Trainer's progress protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """The settings of a worker's reconciles; times are in seconds."""

    master_address: Literal["service", "loopback"] = "service"
    """The value of MASTER_ADDR: the name of the headless service, or 127.0.0.1 with the reservation's port where all
    pods share a machine."""
    make_pods: bool = True
    """Whether pods are created. If False, a job is only admitted; another program runs it and reports its end."""
    admission_timeout: float = 600.0
    """How long an admitted job may take to run before it is sent back to its queue; 0 means without limit."""
    admission_backoff: float = 60.0
    """How long a job that was sent back waits at first; each further wait is twice as long, up to one hour."""
    admission_tries: int = 5
    """The number of such admissions in a row after which the job waits for its owner."""
    gang_scheduler: Literal["none", "volcano", "koordinator", "coscheduling", "kubernetes"] = "none"
    """The gang scheduler of jobs whose spec does not name one."""
    gang_scheduler_name: str = ""
    """The schedulerName of the pods of gangs that coscheduling binds; empty: the templates have it."""
    gang_preemptable: Literal["", "true", "false"] = ""
    """Whether Volcano may preempt the pods of its gangs; empty: the templates have it."""
    pods_at_once: bool = False
    """Whether pods are created before their group is let in, so that a cluster autoscaler sees them."""
    served: frozenset[Resource] = frozenset()
    """The kinds of other projects that the API server served when the process started. For the gangs of Kubernetes
    itself, this shows the version."""
    in_place: Literal["auto", "recreate", "local", "kruise", "kubernetes"] = "recreate"
    """What restarts the containers of a healthy pod: the embedded node, Kruise, or the pod's own restart agent
    (`kubernetes`); `auto` takes the agent before Kruise, and `recreate` replaces the pod."""
    in_place_timeout: float = 60.0
    """How long a restart in place may take before the pod is replaced instead."""
    most_disruptions: int = 100
    """The number of failures without the job's fault after which the job fails."""
    restart_backoff: float = 10.0
    """How long a job waits before its second counted restart in a row. Each further wait is twice as long; 0 turns
    waiting off."""
    longest_restart_backoff: float = 360.0
    """The longest such wait."""
    node_failures: int = 3
    """The number of failures of a job's pods on a node after which the job avoids the node."""
    taints_of_leaving_nodes: frozenset[str] = frozenset()
    """The keys of the taints of nodes that are about to go away; pods leave such nodes early."""
    topology: tuple[str, ...] = ()
    """The labels of nodes, the widest first, by which ranks of static worlds are given; empty if tasks and indexes give
    them."""
    placement_hints: bool = True
    """Whether pods prefer the nodes on which their job was placed."""
    dead_node_grace: float = 60.0
    """How long a node may be silent, and how long a pod may outlive its own grace, before the pod is deleted without
    the node."""
    longest_grace: float = 600.0
    """The longest grace of a pod that a worker deletes, whatever the pod template requests."""
    idle_grace: float = 120.0
    """How long workers for which the queue has not paid may take to save and end, once their room is asked back."""
    cancelled_ttl_seconds: int = 86_400
    """How long after its end a cancelled job without a `ttlSecondsAfterFinished` is deleted."""
    history_patience: float = 3600.0
    """How long the deletion of such a job waits at most until its end is in the history."""
    most_writes: int = 1_000
    """The number of API writes after which a reconcile lets another key run. The limit is high because each new look at
    a job costs as much as dozens of its pods; a large job usually runs into `most_seconds` first."""
    most_seconds: float = 1.0
    """The time in which a reconcile may begin new writes. Other keys have threads of their own in the meantime."""
    parallel_writes: int = 8
    """The number of pods that one process creates or deletes at a time."""
    cache_wait: float = 0.5
    """How long a reconcile waits for the pod cache to reach what the coordinator has seen."""
    reports: ReportAccess | None = None
    """How pods report; None if they do not."""
    name_retry: float = 0.2
    """How soon a reconcile runs again while an older pod holds the name of a new one."""

    @property
    def on_machine(self) -> bool:
        """Whether all pods share the machine of an embedded cluster, which keeps the outputs of every job."""
        return self.master_address == "loopback"

    @property
    def parallel_asks(self) -> int:
        """The number of pods that one process patches at a time; its connection pool must be larger."""
        return ASKS_PER_WRITE * self.parallel_writes

    def backend(self, name: str | None) -> Backend:
        """Return the gang scheduler of a name."""
        return backends.get_backend(name, self.served.__contains__, self.gang_scheduler_name, self.gang_preemptable)

    def version(self, resource: Resource) -> Resource | None:
        """Return the version of a kind that the API server serves; None if the server does not serve the kind."""
        return next((other for other in self.served if other.is_version_of(resource)), None)
