"""The configuration of queues, pool and routing rules for the store and the router.

One rule: the configuration follows from the watches and the settings alone, so that every leader computes the same one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.watches import Watches
from coordinator.leader import watched_state
from coordinator.routing import eligibility, pool_capacity, queue_specs
from coordinator.settings import Settings, parse_pool
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
                shared_address=self.settings.master_address == "loopback",
                queued_after=self.settings.queued_after,
            )
        return self._rules

    def specs(self) -> dict[str, QueueSpec]:
        """Return the settings of the current queues, by name."""
        return watched_state.specs(self.watches, implicit=self.settings.implicit_queues)

    def room(self) -> Amounts | None:
        """Return the size of the pool; None if nothing is scarce."""
        return watched_state.room(self.watches, parse_pool(self.settings.pool), self.rules())

    def apply(self) -> None:
        """Write the current queues and pool to the store, and mark the jobs that a change of them concerns."""
        if not self.settings.implicit_queues:
            self.watches.disable_implied_queues()
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
