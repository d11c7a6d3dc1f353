"""What the leader does, over and over: rebuild once, then flush, cycle, dispatch.

One rule: one thread, in this order, each step safe to repeat. Whatever fails is done again from the newest state.

    flush     keys that changed -> route -> entries put or removed, keys offered
    cycle     snapshot -> choose -> commit (`queues.pick_cycle`)
    dispatch  ready keys -> leased -> RQ
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from coordinator.cache.routing_rules import Rules
from coordinator.cache.views import JobView
from coordinator.cache.watches import Marked, Watches
from coordinator.errors import CoordinatorError
from coordinator.leader import error_isolation
from coordinator.leader.charge_release import Freeing
from coordinator.leader.delayed_keys import Timers
from coordinator.leader.queued_limiter import Turns
from coordinator.routing import eligibility, namespace_quota, pool_capacity, queue_specs, route, watched_state
from coordinator.routing.eligibility import Standing
from coordinator.routing.rebuilt_state import Census
from coordinator.settings import Settings, parse_pool
from crds import integers
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.pick_cycle import Rounds
from queues.picking import read_depth
from queues.picking.backfill import Forecast
from queues.store import QueueStore
from queues.values import Entry, Offer, QueueSpec, Reservation
from queues.work import WorkSource

FLUSH = 512
"""Keys routed per step: bounds how long picks wait behind a flood of events."""
CYCLE_SECONDS = 5.0
"""A cycle is due after this time even if nothing has changed."""
log = logging.getLogger(__name__)


class Unaccounted(CoordinatorError):
    """The cluster shows an admission that the store does not charge; a rebuild does."""


@dataclass(slots=True)
class Counts:
    """What this process has done, for people to look at."""

    routed: int = 0
    picked: int = 0
    dispatched: int = 0
    rebuilds: int = 0


@dataclass(slots=True)
class Term:
    """One leader's time in office."""

    watches: Watches
    store: QueueStore
    work: WorkSource
    settings: Settings
    clock: Callable[[], float] = time.time
    pause: Callable[[float], object] = time.sleep
    elapsed: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    tell: Callable[[JobView, Standing | None], object] = lambda *_: None
    """Who is told what the statuses of jobs should say about their waiting."""
    unsettled: bool = True
    """Whether a cycle may find something to pick."""
    _cycled_at: float = 0.0
    _queues: int = 1
    _rounds: Rounds = field(init=False)
    _turns: Turns = field(init=False)
    _freeing: Freeing = field(init=False)
    _timers: Timers = field(default_factory=Timers)
    """When time alone changes what is to be done about a job."""
    _ceilings: Mapping[str, Amounts] = field(default_factory=dict)
    _limits: Mapping[str, Amounts] = field(default_factory=dict)
    """The same without the pool."""
    _watched: Rules | None = None
    _rules: Rules = field(default_factory=Rules)
    _drained: frozenset[str] = frozenset()
    """Queues of which the store knows that they drain."""
    _revoked: dict[JobKey, int] = field(default_factory=dict)
    """Jobs whose admission the rebuild took back, and its attempt: a worker that finds no charge sends them back."""
    _uncharged: frozenset[JobKey] = frozenset()
    """Jobs whose charge the store cannot keep."""

    def __post_init__(self) -> None:
        self._turns = Turns(self.clock)
        self._rounds = Rounds(self.store, self.settings.rules, self._forecast)
        self._freeing = Freeing(
            self.watches,
            self.store,
            self._rounds,
            self.settings,
            self.clock,
            self.rules,
            lambda key: self._route(key, 0),
        )

    def rebuild(self, epoch: int) -> None:
        """Bring the store in line with the cluster under a new epoch, and look at every unfinished job.

        If the store has lost everything, workers may still be creating pods for admissions that nobody remembers: they
        are refused by the missing epoch; let one lease pass, and count what is there then. In the very first epoch
        nobody has ever been admitted.
        """
        self.watches.quota_jobs.touch()
        self._judge_quotas()
        lost = self.store.epoch() == 0
        if lost and epoch > 1:
            self._wait_for_workers(epoch)
        held = {} if lost else self.store.all_reservations()
        found = self._census(held, read=True)
        kept = self._revoke(found.reservations, held)
        reservations, entries = (
            watched_state.storable(self.watches, kept),
            watched_state.storable(self.watches, found.entries),
        )
        self._uncharged = frozenset(each.key for each in kept) - {each.key for each in reservations}
        self.store.rebuild(epoch, reservations, entries)
        self.counts.rebuilds += 1
        self.watches.raised.clear()  # the term before has had them paid for
        log.info("epoch %d: %d reservations, %d waiting", epoch, len(reservations), len(entries))
        self.configure()
        self.watches.mark([reservation.key for reservation in found.reservations])
        self.watches.mark(held)
        self.watches.mark_again([job.key for job in self.watches.jobs.values() if job.at_rest])
        self.resync()

    def _revoke(self, charged: tuple[Reservation, ...], held: Mapping[JobKey, Reservation]) -> tuple[Reservation, ...]:
        """Without those for which there is no room, of which no pod was made, and which the store did not charge."""
        back = watched_state.without_room(self.watches, charged, held, self._specs(), self._room())
        self._revoked = {each.key: each.attempt for each in charged if each.key in back}
        for key in back:
            log.warning("%s: its admission is taken back: there is no room for it", key)
        return tuple(each for each in charged if each.key not in back)

    def _taken_back(self, key: JobKey, attempt: int) -> bool:
        """Whether a worker has yet to send the job back, of which there are no pods; or it cannot be charged at all."""
        back = self._revoked.get(key) == attempt and not self.watches.pods_of(key, 0).occupy
        return back or key in self._uncharged

    def _wait_for_workers(self, epoch: int) -> None:
        """Let a lease pass since now, and meanwhile tell the store what waits: with many jobs that takes its time."""
        began, seconds = self.elapsed(), self.settings.lease_seconds
        log.info("the queue store is empty: rebuilding it from the cluster in %.0f s", seconds)
        waiting = watched_state.storable(self.watches, self._census({}).entries)
        self.store.prepare(epoch, waiting)
        self.pause(max(0.0, began + seconds - self.elapsed()))

    def resync(self) -> None:
        """Look again at every unfinished job, but for those that are suspended and at rest."""
        jobs = self.watches.jobs.values()
        self.watches.quota_jobs.touch()
        self.watches.mark_again([job.key for job in jobs if not (job.finished or job.at_rest)])
        self.watches.touch_settings()

    def audit(self) -> bool:
        """Whether the store still holds what the cluster shows; what it holds for jobs that are gone is looked at
        again. So are picks that no worker has written: one that came when the job was held, or its queue drained, was
        left alone, and may hold good since.

        False means that admissions have lost their charge (a Redis that came back from an older file): only a rebuild
        helps.
        """
        held = self.store.reservations()
        self.watches.mark_again(held)
        jobs = {key: self.watches.job(key) for key in held}
        unwritten = [key for key, job in jobs.items() if job is not None and job.admission is None]
        rules = self.rules()
        tenants = {key: route.tenant(held[key].queue, key.namespace, rules) for key in unwritten}
        self.work.offer([Offer(key=key, tenant=tenant) for key, tenant in tenants.items()])
        found = self._census(held)
        lost = [each for each in found.reservations if each.key not in held and each.key not in found.leftovers]
        return all(self._taken_back(each.key, each.attempt) for each in lost)

    def rules(self) -> Rules:
        """What routing goes by, as the watches show it now."""
        watched = self.watches.rules()
        if watched is not self._watched:
            self._watched = watched
            self._rules = replace(
                watched,
                ceilings=self._ceilings,
                implicit=self.settings.implicit_queues,
                shared_address=self.settings.master_address == "loopback",
                queued_after=self.settings.queued_after,
            )
        return self._rules

    def _census(self, held: Mapping[JobKey, Reservation], *, read: bool = False) -> Census:
        return watched_state.take(self.watches, held, self.rules(), self.clock(), read=read)

    def step(self) -> bool:
        """Flush, cycle, dispatch; whether anything happened."""
        self._judge_quotas()
        flushed = self.flush() + self._take_turns()
        if self.watches.take_settings_changed(self.settings.settle_seconds):
            self.configure()
        self._rounds.charge(self.watches.raised.take(self.settings.cost))
        picked = self.cycle() if self.unsettled or self._long_ago() else 0
        dispatched = self.work.dispatch()
        self.counts.dispatched += dispatched
        return bool(flushed or picked or dispatched)

    def flush(self) -> int:
        """Route what changed. If the store cannot be reached the keys stay marked and the error goes up."""
        self.watches.mark(self._timers.due(self.clock()))
        freed = self._freeing.free_again()
        self.unsettled |= bool(freed)
        taken = self.watches.take(FLUSH)
        if not taken:
            return freed
        try:
            # Asked first: what is decided below is decided on pods at least as new.
            newest = self.watches.pods.resource_version
            error_isolation.each(
                taken, partial(self._flush, newest), lambda each, error: self.watches.skip(each.key, error)
            )
        except BaseException:
            for each in taken:
                self.watches.mark([each.key], each.seen)
            raise
        self.counts.routed += len(taken)
        return len(taken)

    def _flush(self, newest: int, taken: Sequence[Marked]) -> None:
        self._apply([self._of(each) for each in taken], [each.key for each in taken], newest)
        self.watches.skip_no_more(each.key for each in taken)

    def _offers(self, keys: list[JobKey], routes: list[route.Route]) -> list[Offer]:
        """Those that are made at once. The others wait for their turn."""
        found: list[Offer] = []
        for key, each in zip(keys, routes, strict=True):
            if each.offer is not None and each.in_turn:
                self._turns.place(each.offer)
                continue
            self._turns.forget(key)
            if each.offer is not None:
                found.append(each.offer)
        return found

    def _take_turns(self) -> int:
        """Offer the jobs whose turn it is to have their status written; how many. If the store cannot be reached they
        wait for another turn and the error goes up."""
        due = self._turns.due()
        try:
            if due:
                self.work.offer(due)
        except BaseException:
            self.watches.mark_again([each.key for each in due])
            raise
        return len(due)

    def _judge_quotas(self) -> None:
        """Route the jobs again that ResourceQuotas of their namespace keep out of the order, or do so no longer."""
        for namespace, keys in self.watches.quota_jobs.due():
            jobs = [job for key in keys if (job := self.watches.job(key)) is not None]
            quotas, now = self.rules().quotas.get(namespace, ()), self.clock()
            services = not self.rules().shared_address
            place = partial(route.place, rules=self.rules())
            yielding = namespace_quota.yielding(
                jobs, quotas, now, services=services, arrived=self._arrived, place=place
            )
            self.watches.set_yielding(namespace, yielding)
            rules = self.rules()
            kept_out = frozenset(
                job.key for job in jobs if job.admission is None and eligibility.over_quota(job, rules, now)
            )
            self.watches.mark(self.watches.quota_jobs.judged(namespace, kept_out, limited=bool(quotas)))

    def _arrived(self, key: JobKey) -> int:
        return sum(pod.occupies for pod in self.watches.pods.indexed(key.uid))

    def configure(self) -> None:
        """Tell the store what admins want and what the nodes offer."""
        if not self.settings.implicit_queues:
            self.watches.ignore_names()
        queues, nodes = self._specs(), self.watches.nodes.values() if self.watches.nodes else []
        self.store.configure(list(queues.values()), self._room())
        most = pool_capacity.largest(parse_pool(self.settings.pool), nodes)
        self._ceilings, self._watched = queue_specs.ceilings(queues.values(), most), None
        self._look_at_limited(queue_specs.ceilings(queues.values(), None))
        self._queues = len(queues)
        self.unsettled = True
        draining = frozenset(name for name in queues if eligibility.draining(name, self.rules()))
        if new := draining - self._drained:
            for name in new:  # nothing is picked from it any more: what was picked just now is freed
                self.watches.mark_queue(name)
            # Pods of jobs that have ended, or are gone, may hold room of it still.
            self.watches.mark(key for key, each in self.store.reservations().items() if each.queue in new)
        self._drained = draining

    def _look_at_limited(self, limits: Mapping[str, Amounts]) -> None:
        """What quotas can ever give has changed where an admin changed them; what the pool can is looked at in time."""
        before, self._limits = self._limits, limits
        for name in limits.keys() | before.keys():
            if limits.get(name) != before.get(name):
                self.watches.mark_queue(name)

    def _specs(self) -> dict[str, QueueSpec]:
        return watched_state.specs(self.watches, implicit=self.settings.implicit_queues)

    def _room(self) -> Amounts | None:
        return watched_state.room(self.watches, parse_pool(self.settings.pool), self.rules())

    def cycle(self) -> int:
        """Pick what can be picked; the number of jobs admitted."""
        self._cycled_at = self.clock()
        committed = self._rounds.round(self.clock(), self.settings.batch, self._heads())
        if committed.refused:
            log.debug("commit ended early: %s", committed.refused)
        self.unsettled = bool(committed.picked or committed.refused)
        self.counts.picked += committed.picked
        return committed.picked

    def _forecast(self) -> Forecast | None:
        """When jobs end that have a deadline (`coordinator.cache.deadlines`)."""
        return self.watches.deadlines.forecast(lambda key: self.watches.pods_of(key, 0).occupy)

    def _account(self, keys: list[JobKey]) -> None:
        """A job that was suspended and resumed while it was being admitted may hold room that was just freed."""
        if keys and self.store.reservations(keys).keys() != set(keys):
            raise Unaccounted("an admission has no charge")

    def _long_ago(self) -> bool:
        """Time alone can hand the pool's reservation to another job."""
        return abs(self.clock() - self._cycled_at) >= CYCLE_SECONDS  # somebody may have set the clock back

    def _heads(self) -> int:
        """Most jobs per queue to look at."""
        return read_depth.per_queue(self._queues, self.settings.heads)

    def _of(self, marked: Marked) -> route.Route:
        """The route of a key; if all is that job or pods have changed, no worker looks at what one has settled."""
        found = self._route(marked.key, marked.seen)
        job = self.watches.job(marked.key) if marked.changed else None
        version = integers.bounded(job.version, 0) if job is not None else 0
        if found.offer is None or found.offer.delay or not version:
            return found
        return replace(found, offer=replace(found.offer, version=version))

    def _route(self, key: JobKey, seen: int) -> route.Route:
        pods = self.watches.pods_of(key, seen)
        return route.route(key, self.watches.job(key), pods, self.rules(), self.clock())

    def _apply(self, routes: list[route.Route], keys: list[JobKey], seen: int) -> None:
        """Queue first, work second: a worker that looks finds the queue as it should be."""
        puts: list[Entry] = [each.put for each in routes if each.put is not None]
        removes = self._freeing.find(keys, routes)
        offers = self._offers(keys, routes)
        gone = [key for key in removes if self.watches.job(key) is None]
        if gone:  # before its charge is freed: until then every rebuild looks at it again
            self.work.drop(gone)
        if removes:
            self._freeing.free(removes, seen)
        if puts:
            self.store.put(puts)
        if offers:
            self.work.offer(offers)
        for key, each in zip(keys, routes, strict=True):
            self._timers.set(key, each.again)
            job = self.watches.job(key)
            if job is not None:
                self.tell(job, each.told)
        charged = [(key, each.charged) for key, each in zip(keys, routes, strict=True) if each.charged]
        self._account([key for key, attempt in charged if not self._taken_back(key, attempt)])
        self.unsettled |= bool(puts or removes)
