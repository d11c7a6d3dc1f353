"""A run: jobs arrive and faults strike. After the last fault, every job must reach its expected end.

One rule: the main thread never waits for a server that a fault may have disabled. The actions of owners and the
observer have threads of their own.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import redis

from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from kube import errors
from tests.chaos import plan, records, stores
from tests.chaos.arena import CLIENTS, COORDINATORS, Arena, Times
from tests.chaos.failovers import Failovers
from tests.chaos.observer import FINAL, Observer, clock
from tests.chaos.parts import still_alive
from tests.chaos.rotation import Rotation

NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run."""

    seed: int
    seconds: float = 60.0
    sentinels: bool = False
    """Whether Redis is a Sentinel installation."""
    faults: tuple[str, ...] = plan.ONE_SERVER
    every: float = 4.0
    """The average seconds between two faults."""
    times: Times = field(default_factory=Times)
    slack: float = 20.0
    """The additional seconds on every promise for a slow machine."""
    calm: float = 120.0
    """The seconds after the last fault in which all jobs must end."""

    @property
    def heal(self) -> float:
        """The seconds after a pause within which a resync must have repaired what the pause broke."""
        return self.times.lease + self.times.resync + self.slack


@dataclass
class Outcome:
    """The result of a run: broken promises, the log, and key figures."""

    wrong: list[str]
    log: list[str]
    figures: dict[str, Any]


@dataclass(order=True)
class Due:
    """An action that is due at a time."""

    at: float
    do: Callable[[], None] = field(compare=False)


class Play:
    """A run. Only the main thread may use it."""

    def __init__(self, options: Options, folder: Path, say: Callable[[str], None]) -> None:
        times = options.times
        self.options = options
        self.plan = plan.make(
            options.seed, options.seconds, options.faults, lease=times.longest_lease, every=options.every
        )
        self.jobs = {job.name: job for job in self.plan.jobs}
        self.arena = Arena(folder, options.seed, times, plan.CPUS, sentinels=options.sentinels)
        self._rotation = Rotation(self.arena.store, self.arena.url_files)
        self.log: list[str] = []
        self._say = say
        self._owner = ThreadPoolExecutor(1, thread_name_prefix="owner")
        self._herald = ThreadPoolExecutor(1, thread_name_prefix="herald")
        self._admin = ThreadPoolExecutor(1, thread_name_prefix="admin")
        self._leader: Future[str] | None = None
        self._last_leader = COORDINATORS[0]
        self._deeds: list[Future[None]] = []
        self._due: list[Due] = []
        self._pauses: list[tuple[float, float]] = []
        self._stopped: set[int] = set()
        self._wrong: list[str] = []
        self.now: Callable[[], float] = lambda: 0.0

    def run(self) -> Outcome:
        """Play the run to its end and return the result. The cluster is stopped in every case."""
        figures: dict[str, Any] = {}
        try:
            self.arena.start()
            for name, quota in plan.QUEUES.items():
                self.arena.queue(name, plan.WEIGHTS[name], quota)
            figures = self._watched()
        except AssertionError as error:
            self._wrong.append(str(error))
        finally:
            self._still()
            self._owner.shutdown(cancel_futures=True)
            self._herald.shutdown(cancel_futures=True)
            self._admin.shutdown(cancel_futures=True)
            self._wrong += self.arena.stop()
            left = still_alive(self.arena.parts.pids_ever)
            self._wrong += [f"process {pid} is left" for pid in left]
        return Outcome(self._wrong, self.log, figures)

    def _watched(self) -> dict[str, Any]:
        self.now = clock()
        observer = Observer(
            self.arena.api(),
            self.arena.charged,
            self.jobs,
            self.now,
            self._excused,
            patience=self.options.heal + 3 * self.options.times.longest_lease,
        )
        observer.start()
        try:
            self._schedule()
            self._act(self.options.seconds)
            self._settle()
        finally:
            observer.stop()
            self._wrong += observer.wrong
            self._wrong += records.wrong(records.read(self.arena.records), self.plan.jobs) + self._refusals()
        return {
            "seed": self.options.seed,
            "jobs": len(self.jobs),
            "faults": len(self.plan.faults),
            "resized_jobs": observer.resized,
            "pod_runs": len(records.read(self.arena.records)),
            "looks": observer.looks,
            "peak": observer.peak,
            "excused": len(observer.excuses),
            "longest_disagreement_seconds": observer.longest,
            "seconds": round(self.now(), 1),
            "starts": {name: part.starts for name, part in self.arena.parts.all.items()},
            "network_hits": self.arena.network.hits() if self.arena.network else {},
        }

    # The schedule

    def _schedule(self) -> None:
        for job in self.plan.jobs:
            self._due.append(Due(job.at, lambda job=job: self._owned(lambda: self._create(job))))
            for deed in job.deeds:
                self._due.append(Due(deed.at, lambda job=job, deed=deed: self._owned(lambda: self._deed(job, deed))))
        self._due += [Due(fault.at, lambda fault=fault: self._strike(fault)) for fault in self.plan.faults]

    def _act(self, seconds: float) -> None:
        """Carry out due actions for `seconds`, and then until no action is left."""
        while self.now() < seconds or self._due:
            self._due.sort()
            while self._due and self._due[0].at <= self.now():
                self._due.pop(0).do()
            self.arena.parts.tick()
            self._ask_for_leader()
            time.sleep(0.02)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        self._due.append(Due(self.now() + seconds, do))

    def _note(self, text: str) -> None:
        line = f"{self.now():6.1f} s  {text}"
        self.log.append(line)
        self._say(line)

    # Actions of owners. Each action is repeated until a server has answered it.

    def _owned(self, deed: Callable[[], None]) -> None:
        self._deeds.append(self._owner.submit(self._insist, deed))

    def _insist(self, deed: Callable[[], None]) -> None:
        while True:
            try:
                return deed()
            except (errors.Unreachable, errors.ServerError, errors.TooManyRequests):
                time.sleep(0.1)

    def _create(self, job: plan.Job) -> None:
        with contextlib.suppress(errors.AlreadyExists):
            self.arena.api().create(TORCHJOBS, records.manifest(job, self.arena.records), NAMESPACE)

    def _deed(self, job: plan.Job, deed: plan.Deed) -> None:
        api = self.arena.api()
        if deed.verb == "delete":
            with contextlib.suppress(errors.NotFound):  # the answer to an earlier delete was lost
                api.delete(TORCHJOBS, job.name, NAMESPACE)
            return
        size: dict[str, Any] = {"torchTaskSpecs": {"Worker": {"numTasks": deed.workers}}}
        change = size if deed.verb == "scale" else {"suspend": deed.verb == "suspend"}
        with contextlib.suppress(errors.Invalid):  # the job has finished already
            api.patch(TORCHJOBS, job.name, {"spec": change}, NAMESPACE)

    # Faults

    def _strike(self, fault: plan.Fault) -> None:
        target = self._named(fault.target)
        self._note(f"{fault}" + (f" ({target})" if target != fault.target else ""))
        if fault.pauses:
            self._pauses.append((self.now(), self.now() + fault.seconds))
        match fault.kind:
            case "kill":
                self._kill(target, fault.seconds)
            case "stop" | "nap":
                self._stop(target, fault.seconds)
            case "api" | "stall":
                self._trouble(target, fault.trouble or "stall", fault.seconds, api=True)
            case "redis":
                self._trouble(target, fault.trouble, fault.seconds, api=False)
            case "rotate":
                self._admin.submit(partial(getattr(self._rotation, target), fault.seconds))
            case "sentinel":
                self._failovers().strike(fault)
            case _:
                self._empty(fault)

    def _empty(self, fault: plan.Fault) -> None:
        match fault.kind:
            case "flush":
                self._herald.submit(self._flush)
            case "lose":
                self.arena.lose_redis()
            case "age":
                kept = self.arena.folder / "kept"
                if self.arena.keep_redis(kept):
                    self._later(fault.seconds, lambda: self._age(kept))

    def _failovers(self) -> Failovers:
        store = self.arena.store
        assert isinstance(store, stores.Sentinels)
        return Failovers(store, self._kill, self._stop, self._later, self._admin.submit)

    def _named(self, target: str) -> str:
        """Return the name of the process that has this role now."""
        leader = self._last_leader
        match target:
            case "leader":
                return leader
            case "standby":
                return next(name for name in COORDINATORS if name != leader)
            case "redis":
                with contextlib.suppress(StopIteration):
                    return self.arena.store.master()
                return self.arena.store.names[0]
        return target

    def _ask_for_leader(self) -> None:
        """Look for the current leader in the background, because the API server may be slow."""
        if self._leader is not None and self._leader.done():
            self._last_leader = self._leader.result() or self._last_leader
            self._leader = None
        if self._leader is None:
            self._leader = self._herald.submit(self.arena.leader)

    def _flush(self) -> None:
        with contextlib.suppress(redis.RedisError), contextlib.closing(self.arena.redis()) as connection:
            connection.flushall()

    def _kill(self, target: str, away: float) -> None:
        if target == "worker":
            for pid in self.arena.parts.worker_pids()[:1]:
                os.kill(pid, signal.SIGKILL)
            return
        self._wake(self.arena.parts[target].pid)
        self.arena.parts[target].kill(away)

    def _stop(self, target: str, seconds: float) -> None:
        pids = self.arena.parts.worker_pids()[:1] if target == "worker" else [self.arena.parts[target].pid]
        for pid in filter(None, pids):
            os.kill(pid, signal.SIGSTOP)
            self._stopped.add(pid)
            self._later(seconds, lambda pid=pid: self._wake(pid))

    def _wake(self, pid: int) -> None:
        if pid in self._stopped:
            self._stopped.discard(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _age(self, kept: Path) -> None:
        self._wake(self.arena.parts["redis"].pid)
        self.arena.age_redis(kept)

    def _trouble(self, client: str, trouble: str, seconds: float, *, api: bool) -> None:
        network = self.arena.network
        assert network is not None
        change = network.api if api else network.redis
        change(client, trouble)
        self._later(seconds, lambda: change(client, ""))

    def _still(self) -> None:
        """End all faults."""
        for pid in [*self._stopped]:
            self._wake(pid)
        if self.arena.network is not None:
            self.arena.network.well()

    def _excused(self, now: float) -> bool:
        return any(begin <= now <= end + self.options.heal for begin, end in self._pauses)

    # The end

    def _settle(self) -> None:
        """End all faults, wait until every job has ended as planned, and record jobs that have not ended so."""
        self._still()
        self._note("calm")
        self.arena.until(lambda: all(deed.done() for deed in self._deeds), "the owners' deeds", self.options.calm)
        for deed in self._deeds:
            deed.result()
        with contextlib.suppress(AssertionError):
            self.arena.until(lambda: not self._unfinished(), "the jobs", self.options.calm)
        self._wrong += self._unfinished()
        if self._wrong:
            return
        self._note("every job has ended as it should")
        self.arena.until(lambda: not self._unsettled(), "Redis to hold nothing any more", self.options.heal)

    def _refusals(self) -> list[str]:
        """Return log lines about refused credentials, if no rotation has made the old password invalid at once."""
        if any(fault.kind == "rotate" and fault.target == "hard" for fault in self.plan.faults):
            return []
        logs = (self.arena.layout.logs(name).read_text(errors="replace").splitlines() for name in CLIENTS)
        return [line for each in logs for line in each if "credentials" in line or "the file of the Redis URL" in line]

    def _unfinished(self) -> list[str]:
        """Return messages about jobs that have not reached their planned end."""
        phases = {
            item["metadata"]["name"]: (item.get("status") or {}).get("phase", "")
            for item in self.arena.api().list(TORCHJOBS).items
        }
        wrong = []
        for job in self.plan.jobs:
            wanted = "gone" if job.deleted else FINAL[bool(job.code)]
            found = phases.get(job.name, "gone")
            if found != wanted:
                wrong.append(f"job {job.name} is {found or 'new'}, not {wanted}")
        return wrong

    def _unsettled(self) -> list[str]:
        """Return Redis keys with data of ended jobs, and pods that still use room."""
        with contextlib.closing(self.arena.redis()) as connection:
            names = ("torchq:entries", "torchq:reservations", "torchq:usage", "torchq:ports")
            left = [name for name in names if connection.exists(name)]
        pods = self.arena.api().list(PODS, label_selector=labels.JOB_UID).items
        left += [pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") not in FINAL]
        return left
