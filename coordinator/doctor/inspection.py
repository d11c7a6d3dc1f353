"""The values that `torchq doctor` compares: one reading of cluster, queue store and work.

One rule: all values are read at about the same time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView, PodView
from coordinator.doctor.gang_setup import GangSetup
from coordinator.doctor.strays import Strays
from crds.keys import JobKey
from queues.inspection_values import StoreInspection, WorkInspection
from queues.installation import Installation
from queues.values import QueueSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """The leader's Lease."""

    holder: str
    epoch: int
    renewed: str
    """The time of the last renewal, as the holder wrote it."""
    seconds: float
    """The longest time between renewals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInspection:
    """The state of the cluster."""

    jobs: Mapping[JobKey, JobView] = field(default_factory=dict)
    pods: tuple[PodView, ...] = ()
    """The pods of jobs; other pods do not matter here."""
    specs: Mapping[str, QueueSpec] = field(default_factory=dict)
    """The tenant queues as their objects configure them."""
    rules: RoutingRules = field(default_factory=RoutingRules)
    """The rules of queues and PriorityClasses that decide which jobs wait, and in which order."""
    lease: LeaseView | None = None
    installation: Installation | None = None
    """To whom the queues must belong; None if it is not known."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Processes that have skipped objects after unexpected errors, and their messages about these objects."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Objects that cannot be read, and why."""
    ineffective: Mapping[str, str] = field(default_factory=dict)
    """Queues that have limits without effect, and these limits."""
    slow_nodes: frozenset[str] = frozenset()
    """Nodes that wait long before they start a container again which is restarted in place."""
    split_gangs: Mapping[JobKey, str] = field(default_factory=dict)
    """The jobs whose gangs are not bound as a whole, and what their conditions say."""
    gangs: GangSetup = field(default_factory=GangSetup)
    """How gang schedulers are set up."""
    strays: Strays = field(default_factory=Strays)
    """What nobody looks after any more, and statuses that others have written."""
    now: float = 0.0
    """The time of the reading, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """One reading of cluster, queue store and work."""

    cluster: ClusterInspection
    store: StoreInspection
    work: WorkInspection
