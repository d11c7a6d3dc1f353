"""The coordinator process: watch, compete for the lease, and while leading do a term.

One rule: whatever the outside does (Redis gone, API server gone, lease lost) is said once, by name, and waited out;
nothing is given up.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

from coordinator.cache import optional_kinds
from coordinator.cache.optional_kinds import Foreign
from coordinator.cache.watches import Watches
from coordinator.errors import LeadershipLost
from coordinator.leader.control_loop import Counts, Term
from coordinator.leader.election import Leadership
from coordinator.leader.reason_writer import Reasons
from coordinator.leader.router import Unaccounted
from coordinator.settings import Settings
from kube import errors as cluster_errors
from kube.api import Cluster
from kube.informer import Informer
from queues import errors as queue_errors
from queues.store import QueueStore
from queues.work import WorkSource

LONGEST_PAUSE = 0.1
"""How long work that a worker gives back may wait for us when nothing has happened for as long; news end any wait."""
RETRY_SECONDS = 0.5
"""Pause before a term begins again that Redis or the API server has ended."""
log = logging.getLogger(__name__)


def identity() -> str:
    """A name per process start, so that a restarted process is not taken for the one before it."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@dataclass(slots=True)
class Coordinator:
    """Runs until `stop` is set."""

    cluster: Cluster
    store: QueueStore
    work: WorkSource
    settings: Settings
    leases: InitVar[Cluster | None] = None
    """The same cluster, by a client that gives up on a request well within a lease; None: `cluster` does."""
    probe: QueueStore | None = None
    """The same store, by a connection that gives up soon; None: `store` does."""
    rebuilt: Callable[[], object] = lambda: None
    """Called after each rebuild: what is kept of the cluster by then will stay for long."""
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counts = field(default_factory=Counts)
    failing: str = ""
    _last_epoch: int = 0
    _incarnation: str = ""
    """Which run of Redis has answered last."""
    _unreadable: bool = False
    """Whether the store holds what cannot be read, which a rebuild alone may not mend."""
    watches: Watches = field(init=False)
    leadership: Leadership = field(init=False)
    reasons: Reasons = field(init=False)

    def __post_init__(self, leases: Cluster | None) -> None:
        kinds = optional_kinds.KINDS if self.settings.pods == "make" else ()
        self.watches = Watches(self.cluster, nodes=self.settings.pool == "nodes", foreign=kinds)
        store, settings = self.probe or self.store, self.settings
        self.reasons = Reasons(
            self.cluster,
            self.watches,
            store,
            settings.rules,
            after=settings.reason_after,
            implicit=settings.implicit_queues,
        )
        self.leadership = Leadership(
            leases or self.cluster,
            identity=identity(),
            namespace=self.settings.lease_namespace,
            lease_seconds=self.settings.lease_seconds,
            renew_seconds=self.settings.renew_seconds,
            unfit=self._store_trouble,
            skipped=lambda: self.watches.errors.shown,
        )

    def run(self) -> None:
        """Serve until stopped; what has begun is finished, then the lease is handed back."""
        watching: tuple[Informer[Any] | Foreign[Any], ...] = (*self.watches.informers, self.watches.foreign)
        for each in watching:
            each.start()
        try:
            while not self.stop.is_set() and not self.watches.synced:
                self._tell(self.watches.failing)
                self.stop.wait(0.05)
            if self.stop.is_set():
                return
            self._tell("")
            self.leadership.start()
            while not self.stop.is_set():
                self._serve_once()
        finally:
            self.leadership.stop()
            for each in watching:
                each.stop()

    def _serve_once(self) -> None:
        """Wait to lead, then lead until something ends the term."""
        if not self.leadership.leading:
            self.failing = ""  # what a term ran into is the next leader's to say
            self.stop.wait(0.05)
            return
        try:
            self._lead()
        except (queue_errors.StaleEpoch, LeadershipLost, cluster_errors.Conflict) as error:
            log.warning("term ended: %s", error)
            self.stop.wait(self.settings.renew_seconds)
        except (queue_errors.StoreLost, Unaccounted) as error:
            log.warning("rebuilding: %s", error)
        except queue_errors.Unreadable as error:
            log.warning("forgetting the queues and rebuilding: %s", error)
            self._unreadable = True
        except (queue_errors.QueueError, cluster_errors.ClusterError) as error:
            self._tell(str(error))
            self.stop.wait(RETRY_SECONDS)

    def _lead(self) -> None:
        term = Term(
            self.watches,
            self.store,
            self.work,
            self.settings,
            pause=self.stop.wait,
            counts=self.counts,
            notify=self.reasons.note,
        )
        asked = self.leadership.asked
        if asked or self._unreadable:
            self._forget()
        began = self._incarnation = self.store.incarnation()
        lost = self.store.epoch() == 0
        term.rebuild(self._new_epoch())
        self.rebuilt()
        self._unreadable = False
        if lost:  # the work queue too, and in it when finished jobs are to be deleted
            self.watches.mark([job.key for job in self.watches.jobs.values()])
        if asked:
            log.warning("the queues were built anew, as somebody asked on the Lease")
            self.leadership.answer(asked)
        self._tell("")
        log.info("leading as %s", self.leadership.holder)
        next_resync = time.monotonic() + self.settings.resync_seconds
        pause = self.settings.dispatch_seconds
        while not self.stop.is_set() and self.leadership.leading and not self.leadership.asked:
            if self._incarnation != began:
                log.warning("rebuilding: Redis was started again and may not know what was done last")
                return
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
                    return
                term.resync()

    def _forget(self) -> None:
        """The rebuild that follows is that of a store that has lost everything."""
        self.store.forget(self.leadership.epoch)
        self.work.forget(self.leadership.epoch)

    def _new_epoch(self) -> int:
        """Taking the lease has raised the epoch already. It has to rise again for a second rebuild in one term, and
        where store or cluster remember a higher one: somebody has deleted the Lease, or given us another cluster's
        Redis. While the store cannot be reached this writes nothing."""
        admitted = (job.admission.epoch for job in self.watches.jobs.values() if job.admission)
        known = max(self.store.epoch(), self._last_epoch, *admitted)
        epoch = self.leadership.epoch
        if epoch <= known:
            epoch = self.leadership.raise_epoch(above=known)
        self._last_epoch = epoch
        return epoch

    def _store_trouble(self) -> str:
        """Why the queues cannot be reached from here: who leads without them stands in the way of one that could."""
        probe = self.probe or self.store
        try:
            probe.epoch()
            self._incarnation = probe.incarnation()
        except queue_errors.QueueError as error:
            return str(error)
        return ""

    def _tell(self, failing: str) -> None:
        """Say a trouble once, and its end once."""
        if failing != self.failing:
            log.warning("%s", failing) if failing else log.info("all is well again")
        self.failing = failing
