"""The processes of a simulation: coordinators and workers, built as in production except for their threads.

One rule: every access of a process to the cluster or the store passes its host's gate, and a killed process loses its
memory.
"""

import logging
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from queue import Empty
from typing import Any, Protocol

from coordinator.cache.optional_kinds import LOOK_SECONDS, OptionalKinds
from coordinator.cache.watches import Watches
from coordinator.errors import LeadershipLost
from coordinator.health.hang_watch import HangWatch
from coordinator.leader.control_loop import ControlLoop
from coordinator.leader.coordinator import RETRY_SECONDS, Coordinator
from coordinator.leader.election import LeaderElection, LeaseConfig
from coordinator.leader.node_places import NodePlaces
from coordinator.leader.router import MissingCharge
from coordinator.leader.status_writer import StatusWriter
from coordinator.settings import Settings
from coordinator.worker.process import EXPECTED, reconcile_settings
from crds import scale_request
from crds.api_resources import POD_GROUPS
from gang.values import GroupView
from kube import errors as cluster_errors
from kube.informer import Informer
from kube.process.turns import Turns
from queues import errors as queue_errors
from queues.dispatch.lease_renewer import LeaseRenewer
from queues.dispatch.redis_work import RedisWork
from queues.dispatch.task_runner import TaskRunner
from queues.redis.log_throttle import OutageLog
from queues.tasks import Task
from reconcilers.observe import Caches, pods_informer
from reconcilers.reconcile import Reconciler
from reconcilers.views.node_view import nodes_informer
from reconcilers.views.pod_group_view import groups_informer
from reconcilers.views.queue_view import queues_informer
from reconcilers.views.scale_request_view import RequestView, requests_informer
from tests.doubles.memory_reports import MemoryReports
from tests.faults.api import ApiClient
from tests.faults.caches import Cache, Feed, Logs
from tests.faults.fibers import Fiber
from tests.faults.invariants.facts import FactWatch
from tests.faults.places import Door, Place, unreachable
from tests.faults.scenarios.scenario import Scenario

log = logging.getLogger("tests.faults")
THREADS = 4
"""The number of parallel reconciles in one worker."""
LONGEST_SECONDS = 10.0
"""A run that takes longer counts as hanging, and its key may go to another worker."""
KEEP_SECONDS = 4.0
"""How often a worker renews its leases."""


class Host(Protocol):
    """The environment of a process."""

    client: ApiClient
    place: Place
    logs: Logs
    settings: Settings
    has_requests: bool
    """Whether there may be scale requests."""
    has_nodes: bool
    """Whether the coordinator follows nodes."""
    facts: FactWatch
    """The facts of all jobs, and what workers have counted of these facts."""
    reports: MemoryReports
    """The reports that pods have sent."""
    scenario: Scenario

    def clock(self) -> float:
        """Return the seconds since 1970."""

    def call(self, process: "Process", label: str, effect: Callable[[], Any], **how: Any) -> Any:
        """Carry out a call of a process, or put a fault in its place."""

    def sleep(self, process: "Process", seconds: float) -> None:
        """Let a process wait. The wait is part of the process's own code."""

    def unforeseen(self, process: "Process", error: Exception) -> None:
        """Report an error of a process that no fault explains."""


class Process:
    """A process that can be killed and stopped."""

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.name = host, name
        self.alive = True
        self.stopped = False
        """Whether the process stands still, as after SIGSTOP."""
        self.hears_at = 0.0
        """The time until which the caches of the process lag."""
        self.idle = False
        """Whether the last step of the process had nothing to do. Any change resets the field."""
        self.stopped_until = 0.0
        self.fibers: list[Fiber] = []
        """The calls that are in progress."""
        self.main: Fiber | None = None
        """The call in progress of the process's main thread."""
        self.feeds: list[Feed] = []
        self.look_at = 0.0
        """The time at which the process looks again for kinds that are not installed."""
        self._foreign: list[OptionalKinds[Any]] = []
        self.keep_at = host.clock()
        self.cluster: Any = Door("api", host.client, self.gate, cluster_errors.Unreachable)

    def gate(self, label: str, effect: Callable[[], Any], **how: Any) -> Any:
        return self.host.call(self, label, effect, **how)

    def feed(self, *informers: Informer[Any]) -> None:
        self.feeds += [Feed(each, self.host.logs.of(each)) for each in informers]

    def _start(self, informer: Informer[Any], _turns: Turns | None) -> None:
        self.feed(informer)

    def follow(self, foreign: OptionalKinds[Any]) -> None:
        """Let the optional kinds look without a thread, and follow installed kinds through feeds."""
        self._foreign.append(foreign)
        make = foreign._informer

        def unstarted(resource: Any) -> Informer[Any]:
            informer = make(resource)
            informer.start = partial(self._start, informer)  # type: ignore[method-assign]
            return informer

        foreign._informer = unstarted

    @property
    def synced(self) -> bool:
        return self.host.clock() < self.look_at and all(feed.synced for feed in self.feeds)

    may_wait: Any = False
    has_statuses: Any = False
    holds_lock: Any = False

    @property
    def hears(self) -> bool:
        return self.host.clock() >= self.hears_at

    def sync(self) -> None:
        """Look for missing kinds, and list the informers that have not been listed yet."""
        if self.host.clock() >= self.look_at and not self._look():
            return
        for feed in self.feeds:
            if not feed.synced and not feed.list():
                return

    def _look(self) -> bool:
        """Ask the API server for missing kinds, and return whether it answered."""
        self.look_at = math.inf  # one thread of the process asks already
        try:
            for kinds in self._foreign:
                kinds.discover()
        except cluster_errors.ClusterError:
            self.look_at = 0.0
            return False
        is_missing = any(kinds._missing for kinds in self._foreign)
        self.look_at = self.host.clock() + LOOK_SECONDS if is_missing else math.inf
        return True

    def due(self) -> float:
        """Return when the process must act without an outside event."""
        return min(self.keep_at, self.look_at)

    def keep(self) -> None:
        """Renew the leases of the process."""
        raise NotImplementedError

    def write_statuses(self) -> None:
        """Write the statuses of jobs that were put."""
        raise NotImplementedError

    def step(self) -> bool:
        """Take one step of the main thread, and return whether the step had work."""
        raise NotImplementedError


class CoordinatorProcess(Process):
    """A `coordinator.leader.coordinator.Coordinator` whose two threads are replaced by steps."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        store, work = host.place.open(self.gate)
        self.served = Coordinator(self.cluster, store, work, host.settings)
        self.watches = self.served.watches = Watches(
            self.cluster,
            nodes=host.has_nodes,
            clock=host.clock,
            foreign=(POD_GROUPS,),
            leaving_taints=host.settings.taints_of_leaving_nodes,
        )
        counts = host.settings.pool == "nodes"
        self.node_places = NodePlaces(self.watches, store.reservations, host.clock, counts)
        self.leadership = self.served.leadership = LeaderElection(
            self.cluster,
            LeaseConfig.from_settings(name, host.settings),
            clock=host.clock,
        )
        self.statuses = self.served.statuses = StatusWriter(
            self.cluster, self.watches, lambda: self.leadership.term, elapsed=host.clock
        )
        self.feed(*self.watches.informers)
        self.follow(self.watches.foreign)
        if host.has_requests:
            self.follow(self.watches.requests.kinds)
        self._is_writing = False
        self.term: ControlLoop | None = None
        self.retry_at = self.resync_at = 0.0
        door: Any = Door("reports", host.reports, self.gate, unreachable)
        self.hangs = HangWatch(
            self.statuses.jobs, self.watches, self.served.store, door, clock=host.clock, elapsed=host.clock
        )
        self.look_at_health_at = host.clock() if host.scenario.reports else math.inf

    @property
    def holds_lock(self) -> bool:
        """Whether a thread of the process holds a lock for which another thread may wait."""
        return self.leadership._lock.locked()

    @property
    def has_statuses(self) -> bool:
        """Whether the thread for statuses has a status to write."""
        lane = self.statuses.jobs
        return self.host.clock() >= lane._free_at and not self._is_writing and bool(lane._puts) and self.leading

    def write_statuses(self) -> None:
        """Write statuses, as the thread for statuses does."""
        self._is_writing = True
        try:
            self.statuses.step()
        finally:
            self._is_writing = False

    @property
    def may_wait(self) -> bool:
        """Whether the next step of the process may wait for the leases of other processes."""
        return self.term is None

    @property
    def leading(self) -> bool:
        return self.leadership.leading

    def keep(self) -> None:
        """Try to take or renew the Lease, as the lease thread does every two seconds."""
        self.keep_at = self.host.clock() + self.host.settings.renew_seconds
        try:
            self.leadership.step()
        except (cluster_errors.Conflict, cluster_errors.AlreadyExists):
            pass
        except cluster_errors.ClusterError as error:
            log.debug("%s: %s", self.name, error)

    def look_at_health(self) -> None:
        """Look at the reports once, as the thread of the status writer does."""
        self.look_at_health_at = math.inf
        try:
            if self.leading:
                self.hangs.look()
            else:
                self.hangs.forget()
        except Exception as error:
            self.host.unforeseen(self, error)
        finally:
            self.look_at_health_at = self.host.clock() + HangWatch.seconds

    def step(self) -> bool:
        """Make one round of `Coordinator._serve_once`, and return whether the round changed anything."""
        if not self.leading:
            self.term = None
            return False
        if self.host.clock() < self.retry_at:
            return False
        try:
            return self._lead()
        except (queue_errors.StaleEpoch, LeadershipLost, cluster_errors.Conflict) as error:
            self._ended(error, self.host.settings.renew_seconds)
        except (queue_errors.StoreLost, MissingCharge) as error:
            self._ended(error, 0.0)
        except (queue_errors.QueueError, cluster_errors.ClusterError) as error:
            self._ended(error, RETRY_SECONDS)
        return True

    def due(self) -> float:
        resting = [max(self.retry_at, self.host.clock() + 0.25)] if self.retry_at else []
        marks = self.watches._dirty_keys
        rested = [until for key, until in marks._resting.items() if key in marks._later]
        return min([super().due(), self.look_at_health_at, *resting, *rested])

    def _lead(self) -> bool:
        settings = self.host.settings
        if self.term is None:
            term = ControlLoop(
                self.watches,
                self.served.store,
                self.served.work,
                settings,
                clock=self.host.clock,
                elapsed=self.host.clock,
                pause=lambda seconds: self.host.sleep(self, seconds),
                lane=self.statuses.jobs,
                memory=self.served.memory,
                node_places=self.node_places,
            )
            self.served.memory.clear()
            lost = self.served.store.epoch() == 0
            term.rebuild(self.served._new_epoch())
            if lost:
                self.watches.mark([job.key for job in self.watches.jobs.values()])
            self.term, self.resync_at = term, self.host.clock() + settings.resync_seconds
            return True
        self.watches.wake.clear()
        busy = self.term.step()
        if self.host.clock() >= self.resync_at:
            self.resync_at = self.host.clock() + settings.resync_seconds
            if not self.term.audit():
                self.term = None
                return True
            self.term.resync()
            busy = True
        if self.watches.errors.times:
            self.host.unforeseen(self, RuntimeError(f"objects were skipped: {self.watches.errors.summary}"))
        return busy

    def _ended(self, error: Exception, pause: float) -> None:
        log.debug("%s: term ended: %s", self.name, error)
        self.term, self.retry_at = None, self.host.clock() + pause


class NoThreads(Executor):
    """An executor without a free thread: other threads would make their calls at moments that no schedule decides."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        """Return a call that waits for a thread until it is cancelled."""
        return Future()


class WorkerProcess(Process):
    """A worker process whose threads are replaced by steps."""

    def __init__(self, host: Host, name: str, *, loopback: bool) -> None:
        super().__init__(host, name)
        _, work = host.place.open(self.gate)
        self._raise_charge = work.raise_charge
        self._finishing = work._finish._sending if isinstance(work, RedisWork) else None
        self.pods = pods_informer(self.cluster)
        self.queues = queues_informer(self.cluster)
        self.nodes = nodes_informer(self.cluster)
        self.feed(self.pods, self.queues, self.nodes)
        self.groups: OptionalKinds[GroupView] = OptionalKinds(
            self.cluster.serves, (POD_GROUPS,), partial(groups_informer, self.cluster)
        )
        self.follow(self.groups)
        requests: OptionalKinds[RequestView] | None = None
        if host.has_requests:
            kinds = scale_request.RESOURCES.values()
            requests = OptionalKinds(self.cluster.serves, kinds, partial(requests_informer, self.cluster))
            self.follow(requests)
        settings = replace(
            reconcile_settings(host.settings),
            master_address="loopback" if loopback else "service",
            parallel_writes=1,
            most_seconds=60.0,
        )
        cache = Cache(self.feeds[0], lambda: self.hears)
        self.reconciler = Reconciler(
            self.cluster,
            cache,
            settings,
            host.clock,
            Caches(queues=self.queues, groups=self.groups, nodes=self.nodes, requests=requests),
            host.facts.meter,
        )
        self.reconciler._executor = NoThreads()  # type: ignore[assignment]
        self._outage = OutageLog(log, host.clock)
        self.runs = TaskRunner(
            work,
            self._reconcile,
            0,
            outage=self._outage,
            expected=EXPECTED,
            run_versions=self.reconciler.run_versions,
            longest=LONGEST_SECONDS,
            clock=host.clock,
        )
        self.runs.threads = THREADS
        self._keeper = LeaseRenewer(name, work, self.runs, pause=KEEP_SECONDS, stop=lambda: False, outage=self._outage)
        self.tasks: list[Task] = []

    @property
    def holds_lock(self) -> bool:
        """Whether a task sends the finishes of other tasks, too, while these tasks wait."""
        return self._finishing is not None and self._finishing.locked()

    def keep(self) -> None:
        """Renew the leases, as the lease thread does every few seconds."""
        self.keep_at = self.host.clock() + self._keeper.renew()

    def step(self) -> bool:
        """Take the next batch from RQ, and return whether there was a batch."""
        if len(self.runs.leases()) >= THREADS:
            return False
        try:
            leases = self.host.place.pop(self.gate)
        except queue_errors.QueueError:
            return False
        if not leases:
            return False
        self.runs._begin(leases)
        try:
            while True:
                self.tasks.append(self.runs._tasks.get_nowait())
        except Empty:
            return True

    def _reconcile(self, task: Task, holds: Callable[[], bool]) -> float | None:
        try:
            return self.reconciler(task, holds, self._raise_charge)
        except (*EXPECTED, queue_errors.QueueError):
            raise
        except Exception as error:
            self.host.unforeseen(self, error)
            raise

    def run(self, task: Task) -> None:
        """Run a task, as a thread of the worker does."""
        try:
            self.runs._run(task)
        finally:
            self.runs._running.pop((task.key, task.token), None)
