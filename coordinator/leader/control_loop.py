"""The leader's control loop: one rebuild, then flush, cycle, resize and dispatch in a loop.

One rule: one thread does the steps in this order, and each step is safe to repeat. A step that fails is done again from
the newest state.

    flush     keys that changed -> route -> entries put or removed, keys offered (`coordinator.leader.router`)
    cycle     snapshot -> choose -> commit (`queues.pick_cycle`)
    resize    who grows into idle room, who gives back -> targets, idle growth (`coordinator.autoscale.autoscaler`)
    dispatch  ready keys -> leased -> RQ
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.autoscale.autoscaler import Autoscaler
from coordinator.autoscale.memory import Memory
from coordinator.autoscale.target_writer import TargetWriter
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.leader import quota_judgement
from coordinator.leader.queue_configuration import QueueConfiguration
from coordinator.leader.router import Router
from coordinator.leader.store_rebuild import StoreRebuild
from coordinator.metrics import leader_metrics
from coordinator.reports.store import ReportReader
from coordinator.routing.eligibility import Eligibility
from coordinator.settings import Settings
from kube.process.meter import NO_METER, Meter
from kube.process.turns import Turn
from queues import metrics as queue_metrics
from queues.pick_cycle import PickCycle
from queues.picking import read_depth
from queues.picking.backfill import JobEnds
from queues.store import QueueStore
from queues.work import WorkSource

CYCLE_SECONDS = 5.0
"""A cycle is due after this time even if nothing has changed."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """The numbers of what this process has done, for people."""

    routed: int = 0
    picked: int = 0
    dispatched: int = 0
    rebuilds: int = 0


@dataclass(slots=True)
class ControlLoop:
    """The control loop of one leader, from its rebuild until it leads no longer."""

    watches: Watches
    store: QueueStore
    work: WorkSource
    settings: Settings
    clock: Callable[[], float] = time.time
    pause: Callable[[float], object] = time.sleep
    elapsed: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    notify: Callable[[JobView, Eligibility | None], object] = lambda *_: None
    """Called with a job and the reason that its status should give for its waiting; None: no reason."""
    targets: TargetWriter | None = None
    """What writes the targets of jobs; None: no job is resized."""
    memory: Memory | None = None
    reports: ReportReader | None = None
    meter: Meter = NO_METER
    turn: Turn = field(default_factory=lambda: Turn("term"))
    """The loop as which a term turns: each part of a step is a turn."""
    unsettled: bool = True
    """Whether a cycle may find something to pick."""
    _cycled_at: float = 0.0
    _pick_cycle: PickCycle = field(init=False)
    _configuration: QueueConfiguration = field(init=False)
    _rebuild: StoreRebuild = field(init=False)
    _router: Router = field(init=False)
    _autoscaler: Autoscaler = field(init=False)

    def __post_init__(self) -> None:
        watches, store, work, settings = self.watches, self.store, self.work, self.settings
        self._pick_cycle = PickCycle(store, settings.rules, self._forecast)
        self._configuration = QueueConfiguration(watches, store, settings)
        self._rebuild = StoreRebuild(
            watches, store, work, settings, self._configuration, self.clock, self.pause, self.elapsed, self.turn
        )
        self._router = Router(
            watches,
            store,
            work,
            settings,
            self._pick_cycle,
            self._configuration.rules,
            self._rebuild.is_charged,
            self.clock,
            self.elapsed,
            self.notify,
        )
        self._autoscaler = Autoscaler(
            watches,
            store,
            self._pick_cycle,
            settings,
            self._configuration.rules,
            self.clock,
            self._router.is_lowering,
            self.targets,
            self.memory or Memory(settings),
            self.reports,
        )

    def rebuild(self, epoch: int, cause: str = "Election") -> None:
        """Rebuild the store from the cluster under a new epoch (`StoreRebuild.rebuild`)."""
        began = self.elapsed()
        self._rebuild.rebuild(epoch)
        self.counts.rebuilds += 1
        self.meter.count(leader_metrics.REBUILDS, cause)
        self.meter.observe(leader_metrics.REBUILD_SECONDS, self.elapsed() - began)
        self.unsettled = True

    def resync(self) -> None:
        """Route every unfinished job again, except those that are suspended and at rest."""
        self._rebuild.resync()

    def audit(self) -> bool:
        """Return whether the store charges every admission that the cluster shows in full (`StoreRebuild.audit`)."""
        return self._rebuild.audit()

    def rules(self) -> RoutingRules:
        """Return the rules of routing, as the watches show them now."""
        return self._configuration.rules()

    def configure(self) -> None:
        """Write the queues and the size of the pool to the store."""
        self._configuration.apply()
        self.unsettled = True

    def step(self) -> bool:
        """Flush, cycle, resize and dispatch once; return whether anything happened."""
        self.turn.mark()
        quota_judgement.judge_due(self.watches, self._configuration.rules, self.clock)
        flushed = self.flush() + self._router.offer_next()
        if self.watches.take_settings_changed(self.settings.settle_seconds):
            self.configure()
        self.turn.mark()
        self._pick_cycle.charge(self.watches.raised.take(self.settings.cost))
        picked = self.cycle() if self.unsettled or self._is_cycle_due() else 0
        self.turn.mark()
        self.unsettled |= self._autoscaler.step()
        self.turn.mark()
        dispatched = self.work.dispatch()
        self.counts.dispatched += dispatched
        return bool(flushed or picked or dispatched)

    def flush(self) -> int:
        """Route what changed; return how many jobs were handled (`Router.flush`)."""
        flushed = self._router.flush()
        if self._router.changed:
            self._router.changed, self.unsettled = False, True
        self.counts.routed += flushed.routed
        return flushed.routed or flushed.freed

    def cycle(self) -> int:
        """Pick what can be picked; return the number of jobs admitted."""
        self._cycled_at, began = self.clock(), self.elapsed()
        heads = read_depth.per_queue(self._configuration.queue_count, self.settings.heads)
        committed = self._pick_cycle.run(self.clock(), self.settings.batch, heads)
        self.meter.observe(leader_metrics.CYCLE_SECONDS, self.elapsed() - began)
        self.meter.count(queue_metrics.PICKS, by=committed.picked)
        if committed.refused:
            self.meter.count(queue_metrics.REFUSED_COMMITS, committed.refused)
            log.debug("commit ended early: %s", committed.refused)
        self.unsettled = bool(committed.picked or committed.refused)
        self.counts.picked += committed.picked
        return committed.picked

    def _forecast(self) -> JobEnds | None:
        """Return the ends of the jobs that have a deadline (`coordinator.cache.deadlines`)."""
        return self.watches.deadlines.forecast(lambda key: self.watches.pods_of(key, 0).occupy)

    def _is_cycle_due(self) -> bool:
        """Return whether CYCLE_SECONDS have passed since the last cycle: time alone can hand the pool's reservation to
        another job."""
        return abs(self.clock() - self._cycled_at) >= CYCLE_SECONDS  # the clock of the machine may have been set back
