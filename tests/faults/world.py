"""One run of a schedule: a clock, a cluster, a store, processes, a node, an owner, and the order of their steps.

One rule: everything that happens is a function of the schedule.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coordinator.settings import Settings
from crds.api_resources import TORCHJOBS, Resource
from embedded.apiserver.storage.journal import Change
from kube import errors
from queues.tasks import Task
from tests.doubles.memory_reports import MemoryReports
from tests.faults.api import Api, ApiClient
from tests.faults.caches import Feed, Logs
from tests.faults.fibers import Fiber, Killed
from tests.faults.invariants.facts import FactWatch
from tests.faults.node import Node
from tests.faults.observer import Observer
from tests.faults.places import Place
from tests.faults.processes import CoordinatorProcess, Process, WorkerProcess
from tests.faults.report_port import ReportPort
from tests.faults.scenarios import catalog
from tests.faults.scenarios.scenario import Scenario
from tests.faults.schedules import WAITS, Kind, Schedule
from tests.faults.verdict import RESYNC_SECONDS, START, Broken, Verdict

ZOMBIE_SECONDS = 45.0
"""Longer than any lease, except for the lease of a batch that no worker takes."""
LAG_SECONDS = 5.0
RESTART_SECONDS = 1.0
MOST_ROUNDS = 20_000
BUSY_ROUNDS = 200
"""After this number of rounds some time has passed, however busy the processes are."""

PATIENT = frozenset({"hang", "yield"})
"""Faults during which the rest of the process continues."""
PlaceMaker = Callable[[Callable[[], float], tuple[int, int] | None], Place]


@dataclass
class World:
    """One run of a schedule."""

    schedule: Schedule
    make_place: PlaceMaker
    expected: list[str] | None = None
    """What the run without faults leaves in the cluster; None in the run without faults."""
    tracing: bool = False
    trace: list[str] = field(default_factory=list)
    now: float = START
    calls: int = 0
    ticks: int = 0

    def __post_init__(self) -> None:
        self.scenario: Scenario = catalog.SCENARIOS[self.schedule.scenario]
        self.random = random.Random(f"{self.schedule.scenario} {self.schedule.seed}") if self.schedule.seed else None
        self.has_requests = bool(self.scenario.outcomes)
        self.has_nodes = len(self.scenario.nodes) > 1 or self.scenario.pool == "nodes"
        self.reports = MemoryReports(self.clock)
        self.faults: dict[int, list[Kind]] = {}
        for fault in self.schedule.faults:
            self.faults.setdefault(fault.at, []).append(fault.kind)
        self.api = Api(self.clock, self.scenario.missing, self.scenario.adds, self.scenario.most_pods)
        self.logs = Logs()
        self.api.store.subscribe(self.logs.hear)
        self.api.store.subscribe(self._wake)
        self.client = ApiClient(self.api)
        self.place = self.make_place(self.clock, self.scenario.ports)
        self.settings = Settings(
            pool=self.scenario.pool,
            resync_seconds=RESYNC_SECONDS,
            settle_seconds=0.001,
            master_address="service" if self.scenario.ports is None else "loopback",
            **self.scenario.settings,
        )
        self.facts = FactWatch()
        self.api.store.subscribe(self.facts.hear)
        self.observer = Observer(self.api, self.place, self.scenario, self.facts)
        self.steps = list(self.scenario.steps)
        port = ReportPort(self.client, self.reports, self.clock)
        self.node = Node(self.api, self.client, self.scenario, self._may_end, port, self.observer.reported)
        self.processes: list[Process] = []
        self.busy_calls = 0
        """The number of calls until nothing was left except a later look at a job."""
        self._made = 0
        self._fiber: Fiber | None = None
        self._restarts: list[tuple[float, str]] = []
        stuck = self.scenario.stuck * len(self.scenario.jobs) * 3 * self.settings.admission_timeout
        self.verdict = Verdict(self.observer, self.scenario, self.schedule, self.expected, stuck)
        catalog.populate(self.client, self.scenario)
        self.observer.remember_strangers()
        for kind in ("coordinator", "worker", "worker"):
            self._start(kind)

    def clock(self) -> float:
        """Return the seconds since 1970."""
        return self.now

    def _may_end(self, uid: str) -> bool:
        """Return whether the pods of a running job may end by themselves."""
        return not self.scenario.sizes or (not self.steps and self.observer.has_its_size(uid))

    # Calls of processes

    def call(
        self,
        process: Process,
        label: str,
        effect: Callable[[], Any],
        *,
        lost: Callable[[str], Exception],
        about: tuple[Any, ...] = (),
        repeatable: bool = True,
    ) -> Any:
        """Carry out a call of a process, with the faults that hit it."""
        if not process.alive:
            raise Killed
        self.calls += 1
        at = self.calls
        kinds = self.faults.pop(at, [])
        self._note(f"{at:4} {process.name}  {label} {_shown(about) if self.tracing else ''}", *kinds)
        for kind in kinds:
            if kind not in PATIENT or not process.holds_lock:
                self.verdict.disturbed(kind, label)
                self._before(process, kind)
        if "kill<" in kinds:
            self._kill(process)
        if "fail" in kinds:
            raise lost("no answer (a fault: the call took no effect)")
        try:
            answer = self._carry_out(label, effect)
            if "again" in kinds and repeatable:
                answer = effect()
        except Exception as error:
            self._note(f"       -> {type(error).__name__}: {error}")
            raise
        finally:
            self._judge()
        if "kill>" in kinds:
            self._kill(process)
        if "lost" in kinds:
            raise lost("no answer (a fault: the call took effect)")
        return answer

    def _carry_out(self, label: str, effect: Callable[[], Any]) -> Any:
        """Return the answer of a call. Idle growth must not change which queue has the next turn."""
        turns = self.place.turns() if "grow_idle" in label else None
        answer = effect()
        if turns is not None and turns != self.place.turns():
            self.verdict.violated("idle growth costs a queue its turn")
        return answer

    def sleep(self, process: Process, seconds: float) -> None:
        """Let a process wait. The wait is part of the process's own code."""
        self._note(f"     {process.name}  waits {seconds:g} s")
        self._block(self.now + seconds)

    def _before(self, process: Process, kind: Kind) -> None:
        match kind:
            case "flush":
                self.place.lose()
                self.observer.is_lost = True
                self.reports.lose()
                self._restless()
            case "lag":
                process.hears_at = self.now + LAG_SECONDS
            case "user":
                self._user(forced=True)
            case "yield":
                self._block(self.now + ZOMBIE_SECONDS, ticks=self.ticks + 6)
            case "hang":
                self._block(self.now + ZOMBIE_SECONDS)
            case "stop":
                process.stopped, process.stopped_until = True, self.now + ZOMBIE_SECONDS
                self._replace(process)
                self._block(self.now + ZOMBIE_SECONDS)
                process.stopped = False
                self._note(f"     {process.name}  goes on")

    def _block(self, wake_at: float, ticks: int = MOST_ROUNDS) -> None:
        assert self._fiber is not None, "a call outside a fiber cannot wait"
        fiber = self._fiber
        fiber.wake_at = wake_at
        fiber.block(lambda: self.now >= wake_at or self.ticks >= ticks)

    def _kill(self, process: Process) -> None:
        process.alive = False
        self._replace(process)
        raise Killed

    def _replace(self, process: Process) -> None:
        """Schedule the start of a new process, as a standby or a restart."""
        kind = "coordinator" if isinstance(process, CoordinatorProcess) else "worker"
        self._restarts.append((self.now + RESTART_SECONDS, kind))

    def _start(self, kind: str) -> None:
        self._made += 1
        made: Process
        if kind == "coordinator":
            made = CoordinatorProcess(self, f"c{self._made}")
        else:
            made = WorkerProcess(self, f"w{self._made}", loopback=self.scenario.ports is not None)
        self.processes.append(made)
        self._note(f"     {made.name}  starts")

    # The order of steps

    def run(self) -> None:
        """Run to the expected end. Raises Broken if an invariant does not hold or the end is not reached."""
        try:
            while True:
                busy = self._shuffled() if self.random else self._steady()
                self.ticks += 1
                if not busy and self._rests():
                    return
                if not busy or self.ticks % BUSY_ROUNDS == 0:
                    self._advance()
                if self.ticks > MOST_ROUNDS:
                    raise Broken("no end to it: the processes keep each other busy")
        finally:
            for process in self.processes:
                self._bury(process)

    def _rests(self) -> bool:
        """Return whether the run has reached its expected end. Raises Broken if the run takes too long."""
        under_way = [f"{each.name} has not gone on" for each in self.processes if each.fibers]
        under_way += [f"a {kind} is to be started" for _, kind in self._restarts]
        if not self.verdict.rests:
            self.busy_calls = self.calls
        return self.verdict.may_end(self.now, under_way, waits=bool(self.steps))

    def _steady(self) -> bool:
        """Try all possible actions once, in order, and return whether any action changed something."""
        return sum(self._act(act) for act in list(self._acts())) > 0

    def _shuffled(self) -> bool:
        """Try possible actions in random order until one action changes something, and return whether any did."""
        assert self.random is not None
        acts = list(self._acts())
        self.random.shuffle(acts)
        return any(self._act(act) for act in acts)

    def _act(self, act: Callable[[], object]) -> bool:
        done = bool(act())
        if self.verdict.broken:
            raise self.verdict.broken
        return done

    def _acts(self) -> Iterator[Callable[[], object]]:
        for process in list(self.processes):
            yield from (
                partial(self._resume, process, fiber)
                for fiber in list(process.fibers)
                if fiber.until() and (not process.stopped or fiber.wake_at == process.stopped_until)
            )
            if process.alive and not process.stopped:
                yield from self._acts_of(process)
        yield from (partial(self._outside, act) for act in self._surroundings())

    def _surroundings(self) -> Iterator[Callable[[], object]]:
        if self.steps:
            yield self._user
        yield from self.node.acts()
        yield self.api.collect

    def _outside(self, act: Callable[[], object]) -> object:
        try:
            done = act()
        except errors.ClusterError as error:
            done = str(error)  # another action of this round has changed the object
        if done:
            self._note(f"     {done if isinstance(done, str) else 'garbage is collected'}")
            self._judge()
        return done

    def _acts_of(self, process: Process) -> Iterator[Callable[[], object]]:
        if not process.synced:
            yield partial(self._begin, process, process.sync)
            return
        if process.hears:
            yield from (partial(self._deliver, process, feed) for feed in process.feeds if feed.behind)
        if self.now >= process.keep_at:
            yield partial(self._begin, process, process.keep)
        if process.has_statuses:
            yield partial(self._begin, process, process.write_statuses)
        if isinstance(process, CoordinatorProcess) and self.now >= process.look_at_health_at:
            yield partial(self._begin, process, process.look_at_health)
        if not process.idle and process.main is None:
            yield partial(self._begin, process, partial(self._step, process), main=True)
        if isinstance(process, WorkerProcess):
            yield from (partial(self._run_task, process, task) for task in process.tasks)

    def _deliver(self, process: Process, feed: Feed) -> bool:
        """Deliver the next event. In the steady order, deliver all outstanding events."""
        while feed.behind:
            feed.deliver()
            process.idle = False
            if self.random:
                break
        return True

    def _step(self, process: Process) -> object:
        process.idle = not process.step()
        return not process.idle

    def _run_task(self, process: WorkerProcess, task: Task) -> bool:
        if task in process.tasks:
            process.tasks.remove(task)
            self._begin(process, partial(process.run, task))
        return True

    def _begin(self, process: Process, work: Callable[[], object], *, main: bool = False) -> bool:
        """Let a process do some work, and return whether the process did anything."""
        if not process.alive or process.stopped:
            return False
        if not (self._may_wait or (main and process.may_wait)):
            return self._at_once(process, work, main=main)
        fiber = Fiber(work)
        if main:
            process.main = fiber
        process.fibers.append(fiber)
        self._resume(process, fiber)
        return not main or not process.idle

    @property
    def _may_wait(self) -> bool:
        """Whether a later fault makes a process wait halfway through a call."""
        return any(kind in WAITS for kinds in self.faults.values() for kind in kinds)

    def _at_once(self, process: Process, work: Callable[[], object], *, main: bool) -> bool:
        """Do the work of a process at once, without a fiber."""
        with contextlib.suppress(Killed):
            work()
        if not process.alive:
            self._bury(process)
        self._restless(process)
        return not main or not process.idle

    def _resume(self, process: Process, fiber: Fiber) -> bool:
        if fiber not in process.fibers:
            return False
        self._fiber = fiber
        done = fiber.resume()
        self._fiber = None
        if done:
            process.fibers.remove(fiber)
            process.main = None if process.main is fiber else process.main
        if not process.alive:
            self._bury(process)
        self._restless(process)
        return True

    def _bury(self, process: Process) -> None:
        process.alive = False
        for fiber in process.fibers:
            if not fiber.done:
                fiber.kill()
        process.fibers.clear()

    def _restless(self, by: Process | None = None) -> None:
        """Wake the other processes, since the state has changed."""
        for process in self.processes:
            if by is None or not isinstance(by, type(process)):
                process.idle = False

    def _user(self, *, forced: bool = False) -> str:
        """Take the owner's next step if its condition holds. The API server may refuse a step that comes too late."""
        jobs = {each.name: each.manifest() for each in self.api.objects(TORCHJOBS)}
        ended = all((each.get("status") or {}).get("phase") in ("Succeeded", "Failed") for each in jobs.values())
        if not self.steps or not (forced or ended or self.steps[0][0](jobs)):
            return ""
        self.observer.hurried |= forced
        _, step = self.steps.pop(0)
        if not self.scenario.gentle:
            self.observer.interruptions.update(each["metadata"]["uid"] for each in jobs.values())
        try:
            step(self.client)
        except errors.ClusterError as error:
            return f"the owner is refused: {error}"
        return "the owner takes a step"

    def _advance(self) -> None:
        """Advance the time to the next moment at which something is due."""
        alive = [each for each in self.processes if each.alive and not each.stopped]
        moments = [each.due() for each in alive] + [at for at, _ in self._restarts] + [self.place.due()]
        moments += [fiber.wake_at for each in self.processes for fiber in each.fibers]
        moments += [each.hears_at for each in alive]
        later = [each for each in moments if each is not None and each > self.now]
        self.now += min(2.0, max(0.05, min(later, default=self.now) - self.now))
        self._note(f"---- {self.now - START:.2f} s")
        for at, kind in list(self._restarts):
            if at <= self.now:
                self._restarts.remove((at, kind))
                self._start(kind)
        self._restless()
        self._judge()

    # Verdicts

    def _judge(self) -> None:
        state = (self.api.revision, self.place.epoch(), list(self.place.reservations().values()))
        if broken := self.verdict.look(self.now, state):
            self._note(f"**** {broken}")

    def unforeseen(self, process: Process, error: Exception) -> None:
        """Fail the run for an error of a process that no fault explains."""
        self.verdict.unforeseen(process.name, error)

    def _wake(self, resource: str, change: Change) -> None:
        if self.tracing and "leases" not in resource:
            shown = change.object.manifest()
            self.trace.append(
                f"       {change.kind} {resource} {change.object.name} @{change.object.version} "
                f"{_shown((shown.get('status'),)) if resource.startswith('torchjobs') else ''}"
            )

    def _note(self, text: str, *marks: str) -> None:
        if self.tracing:
            self.trace.append(text + "".join(f"   <=== {mark}" for mark in marks))


def _shown(about: tuple[Any, ...]) -> str:
    text = " ".join(each.kind if isinstance(each, Resource) else _word(each) for each in about)
    return text if len(text) <= 260 else text[:257] + "..."


def _word(thing: Any) -> str:
    return thing.decode() if isinstance(thing, bytes) else str(thing)
