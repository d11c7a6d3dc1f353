"""The coordinator process: it watches, competes for the Lease, and runs the control loop while it leads.

One rule: an outage (Redis or the API server cannot be reached, the Lease is lost) does not end the process. The process
logs the outage once, by name, and waits for its end.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal

from coordinator.cache import optional_kinds
from coordinator.cache.optional_kinds import OptionalKinds
from coordinator.cache.watches import Watches
from coordinator.elastic.idle_history import Memory
from coordinator.errors import LeadershipLost
from coordinator.leader.control_loop import ControlLoop, Counts
from coordinator.leader.election import Fitness, LeaderElection, LeaseConfig, process_identity
from coordinator.leader.node_places import NodePlaces
from coordinator.leader.reasons import Reasons
from coordinator.leader.router import MissingCharge
from coordinator.leader.status_writer import StatusWriter
from coordinator.rbac.permissions import SYSTEM_NAMESPACE
from coordinator.reports.report_store import ReportReader
from coordinator.settings import Settings
from kube import errors as cluster_errors
from kube.api import Cluster
from kube.informer import Informer
from kube.process.meter import NO_METER, Meter
from kube.process.turns import Turn, Turns
from queues import errors as queue_errors
from queues.installation import Installation
from queues.store import QueueStore
from queues.work import WorkSource

RebuildCause = Literal["Election", "StoreLost", "MissingCharge", "Unreadable", "Outage", "RedisReplaced", "AuditFailed"]
"""What ended the last term of this process: the label of the next rebuild."""
LONGEST_PAUSE = 0.1
"""The longest pause between two steps when nothing happens. An event ends the pause; returned work does not."""
RETRY_SECONDS = 0.5
"""The pause before a new term, after an error of Redis or the API server has ended the last term."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class RedisProbe:
    """The latest state of the Redis server that the election has read."""

    store: QueueStore
    incarnation: str = ""
    """The identity of the server process that answered last (`QueueReader.incarnation`)."""
    answers: bool | None = None
    """Whether it answered last; None before it was asked."""
    unfit: str = ""
    """Why the server that answered last cannot hold the queues; empty if it can."""

    def problem(self) -> str:
        """Return, after a request, why the store cannot be used; empty if the store can be used.

        A leader without a store would keep out a coordinator that has a store.
        """
        try:
            problem = self.store.problem()
            self.incarnation = self.store.incarnation()
        except queue_errors.QueueError as error:
            self.answers, self.unfit = False, ""
            return str(error)
        self.answers, self.unfit = True, problem
        return problem


@dataclass(slots=True)
class Coordinator:
    """A coordinator; the coordinator runs until `stop` is set."""

    cluster: Cluster
    store: QueueStore
    work: WorkSource
    settings: Settings
    leases: InitVar[Cluster | None] = None
    """A client of the same cluster whose requests time out well within the duration of a lease; None: use `cluster`."""
    once: InitVar[Cluster | None] = None
    """A client of the same cluster that repeats no request, for the statuses; None: use `cluster`."""
    probe: QueueStore | None = None
    """The same store on a connection with a short timeout; None: use `store`."""
    reports: ReportReader | None = None
    """What training code reports; None: nothing is known of it."""
    rebuilt: Callable[[], object] = lambda: None
    """Called after each rebuild. The objects that are in memory then are likely to stay for long."""
    meter: Meter = NO_METER
    turns: Turns = field(default_factory=Turns)
    """The loops of this process."""
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counts = field(default_factory=Counts)
    failing: str = ""
    installation: Installation | None = None
    """For which installation this process leads; None until its caches are synced."""
    last_epoch: int = 0  # of the last rebuild of this process
    _rebuild_cause: RebuildCause = "Election"
    """What makes the next rebuild necessary."""
    _unreadable: bool = False
    """Whether the store has unreadable content, which a rebuild alone may not replace."""
    redis: RedisProbe = field(init=False)
    watches: Watches = field(init=False)
    leadership: LeaderElection = field(init=False)
    node_places: NodePlaces = field(init=False)
    statuses: StatusWriter = field(init=False)
    reasons: Reasons = field(init=False)
    memory: Memory = field(init=False)
    _turn: Turn = field(init=False)
    """The loop that leads, or waits to lead."""

    def __post_init__(self, leases: Cluster | None, once: Cluster | None) -> None:
        self._turn = self.turns.loop("term")
        self._turn.end()  # it turns from `run` on
        store, settings = self.probe or self.store, self.settings
        kinds = optional_kinds.KINDS if settings.pods == "make" else ()
        counts, taints, hints = settings.pool == "nodes", settings.taints_of_leaving_nodes, settings.placement_hints
        self.redis = RedisProbe(store)
        self.watches = Watches(self.cluster, nodes=counts, foreign=kinds, leaving_taints=taints)
        self.watches.rule_watches.judge(topology=settings.topology if counts else ())
        self.node_places = NodePlaces(self.watches, self.store.reservations, time.monotonic, counts, hints)
        self.statuses = StatusWriter(once or self.cluster, self.watches, lambda: self.leadership.term)
        self.reasons = Reasons(
            self.statuses.reasons,
            self.watches,
            store,
            settings.rules,
            after=settings.reason_after,
            implicit=settings.implicit_queues,
            places=self.node_places.copy,
        )
        self.memory = Memory(settings)
        self.leadership = LeaderElection(
            leases or self.cluster,
            LeaseConfig.from_settings(process_identity(), settings),
            fitness=Fitness(unfit=self.redis.problem, hung=self._term_problem),
            skipped=lambda: self.watches.errors.summary,
        )

    def run(self) -> None:
        """Watch, and lead when elected, until stopped. Then finish the current step and hand the Lease back."""
        watches = self.watches
        optional: tuple[OptionalKinds[Any], ...] = (watches.foreign, watches.gang_queues, watches.requests.kinds)
        watching: tuple[Informer[Any] | OptionalKinds[Any], ...] = (*watches.informers, *optional)
        for source in watching:
            source.start(self.turns)
        try:
            while not self.stop.is_set() and not self.watches.synced:
                self._report(self.watches.failing)
                self._pause(0.05)
            if self.stop.is_set():
                return
            self._report("")
            self._claim_store()
            self.leadership.start(self.turns)
            while not self.stop.is_set():
                self._serve_once()
        finally:
            self._turn.end()
            self.leadership.stop()
            for source in watching:
                source.stop()

    def _claim_store(self) -> None:
        """Tell the stores for which installation this process leads. The caches are synced."""
        cluster = self.watches.rule_watches.namespaces.get("", SYSTEM_NAMESPACE)
        if cluster is not None:
            self.installation = Installation(cluster.uid, self.settings.lease_namespace)
            for store in (self.store, self.probe or self.store):
                store.claim(self.installation)

    def _serve_once(self) -> None:
        """Wait until this process leads, then lead until an error or another leader ends the term."""
        if not self.leadership.leading:
            self.failing = ""  # the next leader reports its own problems
            self._rebuild_cause = "Election"
            self._pause(0.05)
            return
        try:
            self._rebuild_cause = self._lead()
        except (queue_errors.QueueError, cluster_errors.ClusterError, LeadershipLost, MissingCharge) as error:
            self._rebuild_cause = self._end_term(error)

    def _end_term(self, error: Exception) -> RebuildCause:
        """Log why a term ended, and pause before the next term. Return the consequence of the end for the next
        rebuild."""
        if isinstance(error, queue_errors.StaleEpoch | LeadershipLost | cluster_errors.Conflict):
            log.warning("term ended: %s", error)
            self._pause(self.settings.renew_seconds)
            return "Election"
        if isinstance(error, queue_errors.StoreLost | MissingCharge):
            log.warning("rebuilding: %s", error)
            return "MissingCharge" if isinstance(error, MissingCharge) else "StoreLost"
        if isinstance(error, queue_errors.Unreadable):
            log.warning("forgetting the queues and rebuilding: %s", error)
            self._unreadable = True
            return "Unreadable"
        self._report(str(error))
        self._pause(RETRY_SECONDS)
        return "Outage"

    def _pause(self, seconds: float) -> None:
        self._turn.allow(seconds)
        self.stop.wait(seconds)
        self._turn.mark()

    def _lead(self) -> RebuildCause:
        """Lead until the term ends, and return the reason for a rebuild after that."""
        term = ControlLoop(
            self.watches,
            self.store,
            self.work,
            self.settings,
            pause=self.stop.wait,
            counts=self.counts,
            reasons=self.reasons,
            lane=self.statuses.jobs,
            memory=self.memory,
            reports=self.reports,
            node_places=self.node_places,
            meter=self.meter,
            turn=self._turn,
        )
        self.memory.clear()
        incarnation = self.redis.incarnation = _usable_server(self.store)
        request = self.leadership.requested_rebuild
        if request or self._unreadable:
            # The content of store and work queue is deleted, so that the rebuild starts from the cluster alone.
            self.store.forget(self.leadership.epoch)
            self.work.forget(self.leadership.epoch)
        is_lost = self.store.epoch() == 0
        term.rebuild(self._new_epoch(), "Requested" if request else self._rebuild_cause)
        self.rebuilt()
        self._unreadable = False
        if is_lost:  # the work queue is lost as well, and with it the times at which finished jobs are deleted
            self.watches.mark([job.key for job in self.watches.jobs.values()])
        if request:
            log.warning("the queues were rebuilt from the cluster, as requested on the Lease")
            self.leadership.confirm_rebuild(request)
        self._report("")
        log.info("leading as %s", self.leadership.holder)
        return self._turn_until_over(term, incarnation)

    def _turn_until_over(self, term: ControlLoop, incarnation: str) -> RebuildCause:
        next_resync = time.monotonic() + self.settings.resync_seconds
        pause = self.settings.dispatch_seconds
        while not self.stop.is_set() and self.leadership.leading and not self.leadership.requested_rebuild:
            if self.redis.incarnation != incarnation:
                log.warning("rebuilding: Redis was restarted and may lack the newest writes")
                return "RedisReplaced"
            self.watches.wake.clear()
            if term.step():
                pause = self.settings.dispatch_seconds
            else:
                self.watches.wake.wait(pause)
                pause = max(pause, min(LONGEST_PAUSE, 2 * pause))
            if time.monotonic() >= next_resync:
                next_resync = time.monotonic() + self.settings.resync_seconds
                if not term.audit():
                    log.warning("admissions without a charge: rebuilding")
                    return "AuditFailed"
                term.resync()
        return "Election"

    def _new_epoch(self) -> int:
        """Return an epoch for a rebuild that is higher than all earlier epochs.

        Taking the Lease has raised the epoch already. The epoch is raised again for a second rebuild in one term. The
        epoch is also raised if the store or the cluster has a higher epoch, because an admin has deleted the Lease or
        configured the Redis of another cluster. While the store cannot be reached, this method writes nothing.
        """
        admitted = (job.admission.epoch for job in self.watches.jobs.values() if job.admission)
        highest = max(self.store.epoch(), self.last_epoch, *admitted)
        epoch = self.leadership.epoch
        if epoch <= highest:
            epoch = self.leadership.raise_epoch(above=highest)
        self.last_epoch = epoch
        return epoch

    def _term_problem(self) -> str:
        """Return how the term hangs; empty if it does not. A leader that hangs gives up the Lease at the last renewal
        before the hang has lasted for the time of a lease."""
        patience = self.settings.lease_seconds - self.settings.renew_seconds
        # The text does not change while the term hangs: the election logs each new one.
        return f"the term has not turned for over {patience:.0f} s" if self._turn.age > patience else ""

    def _report(self, failing: str) -> None:
        """Log a problem once, and its end once."""
        if failing != self.failing:
            log.warning("%s", failing) if failing else log.info("all is well again")
        self.failing = failing


def _usable_server(store: QueueStore) -> str:
    """Return the identity of a store's server, which the store uses from now on. Raises StoreUnreachable if a rebuild
    could not be written, so that no epoch is used up for it. The identity is read first: until then, the store raises
    StoreLost on any other server than the server of the last term."""
    found = store.incarnation()
    if problem := store.problem():
        raise queue_errors.StoreUnreachable(problem)
    return found
