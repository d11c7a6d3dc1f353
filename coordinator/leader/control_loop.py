"""The leader's control loop: one rebuild, then flush, cycle, resize and dispatch in a loop.

One rule: one thread does the steps in this order, and each step is safe to repeat. A step that fails is done again from
the newest state.

    flush     keys that changed -> route -> entries put or removed, keys offered (`coordinator.leader.router`)
    cycle     snapshot -> choose -> commit (`queues.pick_cycle`)
    resize    who grows into idle room, who gives back -> targets, idle growth (`coordinator.elastic.autoscaler`);
              who gives the room back that its scheduler does not let it use (`coordinator.elastic.recalls`)
    dispatch  ready keys -> leased -> RQ
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.cache import noted_jobs
from coordinator.cache.watches import Watches
from coordinator.elastic.autoscaler import Autoscaler
from coordinator.elastic.idle_history import Memory
from coordinator.elastic.recalls import Recalls
from coordinator.leader import quota_judgement
from coordinator.leader.charge_lowering import ChargeLowering
from coordinator.leader.node_places import NodePlaces
from coordinator.leader.queue_configuration import QueueConfiguration
from coordinator.leader.reasons import Reasons
from coordinator.leader.router import Router
from coordinator.leader.store_rebuild import StoreRebuild
from coordinator.metrics import leader_metrics
from coordinator.reports.report_store import ReportReader
from coordinator.settings import Settings
from coordinator.status_lane import JobLane
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from kube.process.meter import NO_METER, Meter
from kube.process.turns import Turn
from queues import metrics as queue_metrics
from queues.pick_cycle import PickCycle
from queues.picking import kept_room, read_depth
from queues.picking.backfill import JobEnds
from queues.store import QueueStore
from queues.work import WorkSource

CYCLE_SECONDS = 5.0
"""A cycle is due after this time even if nothing has changed."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """The counts of the work of this process, for people."""

    routed: int = 0
    picked: int = 0
    dispatched: int = 0
    rebuilds: int = 0


@dataclass(slots=True)
class ControlLoop:
    """The control loop of one leader, from its rebuild until its term ends."""

    watches: Watches
    store: QueueStore
    work: WorkSource
    settings: Settings
    clock: Callable[[], float] = time.time
    pause: Callable[[float], object] = time.sleep
    elapsed: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    reasons: Reasons | None = None
    """What is told of the reasons that jobs wait; None: nobody."""
    lane: JobLane | None = None
    """Where the targets of jobs are put; None: no job is resized."""
    memory: Memory | None = None
    reports: ReportReader | None = None
    node_places: NodePlaces | None = None
    """The places of jobs on nodes; None: nodes do not matter."""
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
    _recalls: Recalls = field(init=False)

    def __post_init__(self) -> None:
        watches, store, work, settings = self.watches, self.store, self.work, self.settings
        self._pick_cycle = PickCycle(
            store,
            settings.rules,
            self._forecast,
            self._take_gang_room,
            self._ages,
            watches.ended.holds,
            lambda: self.node_places.places if self.node_places is not None else None,
        )
        self._configuration = QueueConfiguration(watches, store, settings)
        self._rebuild = StoreRebuild(
            watches, store, work, settings, self._configuration, self.clock, self.pause, self.elapsed, self.turn
        )
        lowering = ChargeLowering(watches, store, self._pick_cycle, settings, self.elapsed)
        self._router = Router(
            watches,
            store,
            work,
            settings,
            pick_cycle=self._pick_cycle,
            configuration=self._configuration,
            rebuild=self._rebuild,
            lowering=lowering,
            reasons=self.reasons,
            clock=self.clock,
            elapsed=self.elapsed,
            meter=self.meter,
        )
        self._autoscaler = Autoscaler(
            watches,
            store,
            settings,
            pick_cycle=self._pick_cycle,
            configuration=self._configuration,
            lowering=lowering,
            lane=self.lane,
            memory=self.memory or Memory(settings),
            reports=self.reports,
            clock=self.clock,
        )
        self._recalls = Recalls(watches, self._pick_cycle, settings, self.clock, self.lane)

    def rebuild(self, epoch: int, cause: str = "Election") -> None:
        """Rebuild the store from the cluster under a new epoch (`StoreRebuild.rebuild`)."""
        began = self.elapsed()
        self._rebuild.rebuild(epoch)
        if self.node_places is not None:
            self.node_places.forget()
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

    def configure(self) -> None:
        """Write the queues and the size of the pool to the store."""
        self._configuration.apply()
        self.watches.port_jobs.touch()  # a queue was opened or closed
        self.unsettled = True

    def step(self) -> bool:
        """Flush, cycle, resize and dispatch once; return whether anything happened."""
        self.turn.mark()
        quota_judgement.judge_due(self.watches, self._configuration.rules, self.clock, self.store.reservations)
        flushed = self.flush() + self._router.offer_next()
        if self.watches.take_settings_changed(self.settings.settle_seconds):
            self.configure()
        self.turn.mark()
        self._pick_cycle.charge(self.watches.raised.take())
        # The clock of the machine may have been set back. Time alone can hand the pool's reservation to another job.
        pause = kept_room.BOOKED_SECONDS if self._pick_cycle.keeps_room else CYCLE_SECONDS
        is_due = abs(self.clock() - self._cycled_at) >= pause
        picked = self.cycle() if self.unsettled or is_due else 0
        self.turn.mark()
        self.unsettled |= self._autoscaler.step()
        self._recalls.step()
        self.turn.mark()
        dispatched = self.work.dispatch()
        self.counts.dispatched += dispatched
        return bool(flushed or picked or dispatched)

    def flush(self) -> int:
        """Route the changed jobs; return how many jobs were handled (`Router.flush`)."""
        flushed = self._router.flush()
        if self._router.changed:
            self._router.changed, self.unsettled = False, True
        self.counts.routed += flushed.routed
        return flushed.routed or flushed.freed

    def cycle(self) -> int:
        """Pick all jobs that can be picked; return the number of jobs admitted."""
        self._cycled_at, began = self.clock(), self.elapsed()
        if self.node_places is not None and self.node_places.refresh():
            self._pick_cycle.reread()
        heads = read_depth.per_queue(self._configuration.queue_count, self.settings.heads)
        committed = self._pick_cycle.run(self.clock(), self.settings.batch, heads)
        self.meter.observe(leader_metrics.CYCLE_SECONDS, self.elapsed() - began)
        self.meter.count(queue_metrics.PICKS, by=committed.picked)
        if committed.refused:
            self.meter.count(queue_metrics.REFUSED_COMMITS, committed.refused)
            log.debug("commit ended early: %s", committed.refused)
        self.unsettled = bool(committed.picked or committed.refused)
        self.counts.picked += committed.picked
        self._router.hand_over(committed.keys)
        return committed.picked

    def _take_gang_room(self, key: JobKey, demand: Amounts) -> bool:
        return quota_judgement.take_gang_room(self.watches, self._configuration.rules(), key, demand)

    def _ages(self, now: float) -> dict[str, list[float]]:
        return noted_jobs.ages(self.watches.holders.values(), now)

    def _forecast(self) -> JobEnds | None:
        """Return the ends of the jobs that have a deadline (`coordinator.cache.noted_jobs`)."""
        return self.watches.deadlines.forecast(lambda key: self.watches.pods_of(key, 0).occupy)
