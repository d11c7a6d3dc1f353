"""The configuration of queues, pool and routing rules for the store and the router.

One rule: the configuration follows from the watches and the settings alone, so that every leader computes the same
configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.watches import Watches
from coordinator.routing import closed_nodes, eligibility, pod_charges, pool_capacity, queue_specs
from coordinator.settings import Settings, parse_pool
from crds.api_resources import POD_GROUPS
from crds.resources.amounts import Amounts
from queues.store import QueueStore
from queues.values import QueueSpec


@dataclass(slots=True)
class QueueConfiguration:
    """The configuration that one leader has given to its store and router."""

    watches: Watches
    store: QueueStore
    settings: Settings
    queue_count: int = 1
    _ceilings: Mapping[str, Amounts] = field(default_factory=dict)
    """By queue, the most that one job can ever get."""
    _limits: Mapping[str, Amounts] = field(default_factory=dict)
    """By queue, the most that one job can ever get in a pool without limits."""
    _watched_rules: RoutingRules | None = None
    """The rules of the watches from which `_rules` was computed; None: `_rules` must be computed again."""
    _rules: RoutingRules = field(default_factory=RoutingRules)
    _draining: frozenset[str] = frozenset()
    """The draining queues, as last given to the store."""

    def rules(self) -> RoutingRules:
        """Return the rules of routing, as the watches show them now."""
        watched = self.watches.rule_watches.rules()
        if watched is not self._watched_rules:
            self._watched_rules = watched
            self._rules = replace(
                watched,
                ceilings=self._ceilings,
                implicit=self.settings.implicit_queues,
                gang_scheduler=self._gang_scheduler(),
                shared_address=self.settings.master_address == "loopback",
                queued_after=self.settings.queued_after,
            )
        return self._rules

    def _gang_scheduler(self) -> str:
        """Return the gang scheduler of jobs that name no scheduler, as the workers choose it."""
        setting = self.settings.gang_scheduler
        return setting if setting != "auto" else "volcano" if POD_GROUPS in self.watches.foreign.served else "none"

    def specs(self) -> dict[str, QueueSpec]:
        """Return the queues that admins created and, where queues are implicit, the queues that the namespaces of
        jobs imply."""
        queues = {queue.metadata.name: queue_specs.spec(queue) for queue in self.watches.queues.values()}
        implied = self.watches.implied.recount(self.watches.jobs.values()) if self.settings.implicit_queues else ()
        return {name: QueueSpec(name=name) for name in implied} | queues

    def room(self) -> Amounts | None:
        """Return the size of the pool; None if nothing is scarce."""
        watches, setting = self.watches, parse_pool(self.settings.pool)
        nodes = watches.nodes.values() if watches.nodes else []
        if setting != "nodes" or not nodes:
            return pool_capacity.capacity(setting, nodes, ())
        jobs = {job.key: job for job in watches.jobs.values()}
        pods = [*pod_charges.pods_for_pool(watches.pods.values(), jobs, self.rules())]
        return pool_capacity.capacity(setting, nodes, pods, closed_nodes.held(nodes, pods, jobs))

    def apply(self) -> None:
        """Write the current queues and pool to the store, and mark the jobs that a change of queues or pool
        concerns."""
        if not self.settings.implicit_queues:
            self.watches.implied.disable()
        queues, nodes = self.specs(), self.watches.nodes.values() if self.watches.nodes else []
        self.store.configure(list(queues.values()), self.room())
        largest_pool = pool_capacity.largest(parse_pool(self.settings.pool), nodes)
        self._ceilings, self._watched_rules = queue_specs.ceilings(queues.values(), largest_pool), None
        self._mark_limited(queue_specs.ceilings(queues.values(), None))
        self.queue_count = len(queues)
        draining = frozenset(name for name in queues if eligibility.is_draining(name, self.rules()))
        if newly_draining := draining - self._draining:
            for name in newly_draining:  # no job is picked from it any more, and jobs that were just picked are freed
                self.watches.mark_queue(name)
            # Pods of jobs that are finished or deleted may still hold room of the queue.
            charges = self.store.reservations()
            self.watches.mark(key for key, charge in charges.items() if charge.queue in newly_draining)
        self._draining = draining

    def _mark_limited(self, limits: Mapping[str, Amounts]) -> None:
        """Mark the jobs of queues whose limits an admin has changed. After a change of the pool, a resync routes the
        jobs again."""
        before, self._limits = self._limits, limits
        for name in limits.keys() | before.keys():
            if limits.get(name) != before.get(name):
                self.watches.mark_queue(name)
