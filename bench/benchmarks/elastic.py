"""Measures the cost of a resize of real training jobs on an embedded stack: torchrun and gloo, with `examples/elastic`.

One rule: the times are those that the training processes have logged, and usage of quotas is computed from pods alone.
Each time is also given without a cold start: the time that the same number of agents and training processes takes to
start alone on the same machine, measured right before and right after the change.
"""

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import stack
from bench.support.elastic import training_record
from bench.support.elastic.cold_start import ColdStart
from bench.support.elastic.training_job import EXAMPLE, LARGEST, NAMESPACE, SCALE_INS, RunningJob, TrainingJob
from bench.support.elastic.training_record import Line
from bench.support.elastic.watched import QuotaWatch, StatusWrites
from bench.support.stack import Stack
from queues.redis import connection

MODES = ("Rendezvous", "InPlaceRestart")
LATE_SECONDS = 20.0
"""How much later than the other the second of two added pods may start in the step with a late pod."""
_CPUS = 8
_FREE_FOR_ONE = 1_500
"""The thousandths of cpu that are left for the two added pods while another pod takes room: enough for one."""
LOAD_CHANGED = 1.5
"""The ratio of the cold starts before and after a change from which its time over the cold start says little."""
_SETTLE_SECONDS = 8.0
"""How long a step goes on after its first training step, so that a second restart would be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    modes: tuple[str, ...] = option(MODES, "how the job takes up a new size", choices=MODES, flags="--mode")
    step_seconds: float = option(0.2, least=0)
    """The least time of a training step."""
    save_every: int = option(25, "steps")
    seconds: float = option(180.0, "limit of each change", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a running job."""

    name: str
    act: Callable[[RunningJob], None]
    world: int
    """The number of workers that train afterwards."""
    agents: int = 0
    """The number of agents that have to start, where the others go on."""
    resizes: bool = True
    """Whether the job's owner has asked for the change; else it is a fault."""
    needs_scale_ins: bool = False
    """Whether the change is a ScaleIn, or follows one."""
    late_seconds: float = 0.0
    """How long the room for the last pod is missing."""


def changes() -> Iterator[Change]:
    """Yield the changes of one job in their order, from 2 workers."""
    for name, world, agents in (("2->4", 4, 2), ("4->3", 3, 0), ("3->1", 1, 0), ("1->4", 4, 3)):
        yield Change(name=name, act=_scale(world), world=world, agents=agents)
    yield Change(name="ScaleIn of worker 1", act=lambda job: job.scale_in(1), world=3, needs_scale_ins=True)
    yield Change(name="3->4", act=_scale(4), world=4, agents=1, needs_scale_ins=True)
    yield Change(name="kill of worker 2", act=lambda job: job.kill_worker(2), world=4, agents=1, resizes=False)
    yield Change(name="kill of worker 0", act=lambda job: job.kill_worker(0), world=4, agents=1, resizes=False)
    yield Change(name="kill of the store", act=RunningJob.kill_store, world=4, agents=4, resizes=False)
    yield Change(name="4->2", act=_scale(2), world=2)
    yield Change(name="2->4, one pod late", act=_scale(4), world=4, agents=2, late_seconds=LATE_SECONDS)


def _scale(workers: int) -> Callable[[RunningJob], None]:
    return lambda job: job.scale(workers)


def run(options: Options) -> Figures:
    """Start a stack, and change a job of each mode again and again. Raises BenchError if a change does not end."""
    if importlib.util.find_spec("torch") is None:
        raise BenchError("PyTorch is not installed in this environment: pip install torch==2.13.0")
    with stack.running(_CPUS, {"TORCHQ_POOL": "none"}) as running:
        bench = running.bench
        starts = ColdStart(bench, EXAMPLE / "train.py")
        jobs = [TrainingJob(bench.folder, mode, options.step_seconds, options.save_every) for mode in options.modes]
        quotas = {job.name: job.quota() for job in jobs}
        usage, writes = QuotaWatch(running.cluster, quotas), StatusWrites(running.cluster, NAMESPACE)
        with usage.informer, writes.informer:
            steps, gaps, skipped = list[Figures](), list[float](), list[str]()
            for job in jobs:
                measured = Resizing(running, RunningJob(running.cluster, job), starts, writes, options)
                steps += measured.run()
                skipped += measured.skipped
                gaps.append(measured.loss_gap())
    return {
        "steps": steps,
        "loss_gap_percent": round(max(gaps), 3),
        "over_quota": usage.over,
        "peak_of_quota_percent": round(usage.peak_percent, 1),
        "status_writes_per_resize": max((step["status_writes"] for step in steps if step["resize"]), default=0),
        "skipped": skipped,
        "log_troubles": running.troubles(),
    }


@dataclass(eq=False)
class Resizing:
    """The changes of one job."""

    stack: Stack
    running: RunningJob
    starts: ColdStart
    writes: StatusWrites
    options: Options
    skipped: list[str] = field(default_factory=list)
    """The changes that were not made, with the reason."""

    @property
    def job(self) -> TrainingJob:
        """The job as it is submitted."""
        return self.running.job

    def run(self) -> list[Figures]:
        """Submit the job, change it, and delete it. Return the figures of each change."""
        self.running.submit()
        self._wait(lambda: training_record.first_step(self.lines(), 0, 2), "the first step")
        steps = self._measure_all()
        self.running.delete()
        self._wait(lambda: not self.running.pods() and not self._held(), "the end of the job")
        return steps

    def loss_gap(self) -> float:
        """Return by how many percent the loss differs at the end from the loss of an undisturbed run."""
        losses = training_record.losses(self.lines())
        return training_record.loss_gap(losses, self.starts.undisturbed(self.job.name, max(losses)))

    def lines(self) -> Sequence[Line]:
        """Return the lines that the training processes have logged so far."""
        return training_record.parse(self.job.record.read_text()) if self.job.record.exists() else []

    def _measure_all(self) -> list[Figures]:
        if self.job.has_store and not self.running.has_store():
            self.skipped.append(f"{self.job.mode}: no pod of the job is a rendezvous store")
            return []
        self._settle(2)
        return [self._measure(change) for change in changes() if self._is_possible(change)]

    def _is_possible(self, change: Change) -> bool:
        if change.act == RunningJob.kill_store and not self.job.has_store:
            return False
        if change.needs_scale_ins and not self.stack.cluster.serves(SCALE_INS):
            self.skipped.append(f"{self.job.mode}: {change.name}: the API server has no ScaleIn")
            return False
        return True

    def _cold_start(self, change: Change) -> float:
        """Return the time of the starts that the change needs: without a store, all agents start again."""
        return self.starts.seconds(change.agents if self.job.has_store else change.world, change.world)

    def _measure(self, change: Change) -> Figures:
        before = self._cold_start(change)
        with self._late_room(change) as release:
            writes, asked = self.writes.count, time.time()
            change.act(self.running)
            since = release() if change.late_seconds else asked
            self._wait(lambda: training_record.first_step(self.lines(), asked, change.world), change.name)
            self._settle(change.world)
        lines = self.lines()
        first = training_record.first_step(lines, asked, change.world)
        assert first is not None
        after = self._cold_start(change)
        cold = (before + after) / 2
        return {
            "name": change.name,
            "mode": self.job.mode,
            "resize": change.resizes,
            "took_s": round(first.time - since, 2),
            "over_cold_start_s": round(first.time - since - cold, 2),
            "cold_start_s": round(cold, 2),
            "load_changed": max(before, after) > LOAD_CHANGED * min(before, after),
            "training_restarts": training_record.restarts(lines, asked),
            "steps_lost": training_record.steps_lost(lines, asked),
            "status_writes": self.writes.count - writes,
        }

    @contextmanager
    def _late_room(self, change: Change) -> Iterator[Callable[[], float]]:
        """Take room of the node, so that the last added pod cannot start before `release` has given it back. `release`
        waits, and returns the time."""

        def release() -> float:
            time.sleep(change.late_seconds)
            self.running.leave_room()
            return time.time()

        if change.late_seconds:
            present = LARGEST - change.agents
            self.running.take_room(1000 * (_CPUS - present) - _FREE_FOR_ONE)
            self._wait(self.running.room_is_taken, "the pod that takes room")
        yield release

    def _settle(self, workers: int) -> None:
        """Wait until the job has the number of workers that it wants, and then for some time more."""
        time.sleep(_SETTLE_SECONDS)
        self._wait(lambda: self._is_settled(workers), f"{workers} settled workers")

    def _is_settled(self, workers: int) -> bool:
        state = self.writes.state(self.job.name)
        is_granted = state is not None and not state.is_scaling and state.workers == workers
        return is_granted and self.running.are_together(workers)

    def _held(self) -> int:
        with connection.translate_errors(self.stack.redis):
            return int(self.stack.redis.hlen("torchq:reservations"))

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        def fails_early() -> object:
            state = self.writes.state(self.job.name)
            if state is not None and state.phase == "Failed":
                raise BenchError(f"{self.job.name}: {what}: the job has failed: {state.message}{self._outputs()}")
            return condition()

        self.stack.bench.wait(fails_early, f"{self.job.name}: {what}", self.options.seconds, self._progress)

    def _progress(self) -> str:
        state = self.writes.state(self.job.name)
        pods = [f"{pod['metadata']['name']} {pod['status'].get('phase')}" for pod in self.running.pods()]
        last = [str(line) for line in self.lines()[-3:]]
        told = f"phase {state.phase}, {state.workers} of {state.wanted} workers, {state.message}" if state else "no job"
        return "\n".join([told, *pods, *last]) + self._outputs()

    def _outputs(self) -> str:
        """Return the end of the output of the pods."""
        logs = sorted((self.stack.data / "pods").glob("*/containers/*/*/output*"))
        return "".join(f"\n--- {log.parent}\n{log.read_text(errors='replace')[-600:]}" for log in logs)
