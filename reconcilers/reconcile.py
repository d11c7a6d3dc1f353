"""The reconciler: observe, plan, apply.

One rule: a worker calls it for each key. The reconciler keeps only state that it could observe again. A fact about a
job is counted after the API server has taken its write; a write without an answer is looked up later.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from crds import integers
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster
from kube.process.meter import NO_METER, Meter
from queues.task_times import TaskTimes
from queues.tasks import Task
from queues.values import Refusal
from queues.work import RunVersions
from reconcilers import facts, failure_text, values
from reconcilers.apply.apply import Application, Outcome
from reconcilers.facts import Fact
from reconcilers.observe import NO_CACHES, Caches, Observer, PodCache
from reconcilers.plan.plan import plan
from reconcilers.plan.recovery import is_about_requests
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Blocker, EmitEvent, InvalidJob, Observation, Obstacle, Plan, WriteStatus

log = logging.getLogger(__name__)

RaiseCharge = Callable[[JobKey, str, int, Amounts], Refusal]
"""The function `queues.work.WorkSink.raise_charge`."""


Tell = Callable[[JobKey, EmitEvent], None]
"""The function `reconcilers.apply.events.LifeEventWriter.tell`."""


def no_store(*_: object) -> Refusal:
    """Refuse a larger charge where there is no queue store."""
    return "pool"


def tell_nobody(*_: object) -> None:
    """Drop an Event."""


class _OpenWrite(NamedTuple):
    """A write of a status that may have been taken."""

    job: TorchJob | InvalidJob
    """The job before it."""
    change: Mapping[str, Any]


class FactCounter:
    """The counts of one worker process; safe to share between threads."""

    def __init__(self, cluster: Cluster, meter: Meter, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._meter = meter
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[JobKey, _OpenWrite] = {}

    def note(self, observation: Observation, application: Application, times: TaskTimes | None) -> None:
        """Count the changes that an executed plan has made to a job. `times` are those of the run."""
        job, now = observation.job, self._clock()
        if job is None:
            return
        written = application.written["status"] if application.written is not None else None
        if written is not None:
            self._count(facts.between(job, written, now))
            if times is not None and facts.admits(job.status, written):
                self._count(facts.held(times, now))
                log.debug("%s: picked %.4f, leased %.4f, begun %.4f, admitted %.4f", observation.key, *times, now)
        if application.pod is not None and not observation.pods and isinstance(job, TorchJob):
            self._count(facts.first_pods(job, written or job.status.manifest(), now))
        if application.unanswered is not None:
            with self._lock:
                self._open[observation.key] = _OpenWrite(job, application.unanswered)

    def settle(self, observation: Observation) -> None:
        """Count the writes without an answer that the API server has taken. Only other jobs cost a request; the
        observed job costs none.
        """
        for key in tuple(self._open):
            status = _status(observation.job) if key == observation.key else self._read(key)
            if status is None:
                continue
            with self._lock:
                write = self._open.pop(key, None)
            if write is not None and facts.is_taken(status, write.change):
                # The status may show later writes, too, which are counted by their own writers.
                written = facts.with_change(_status(write.job), write.change)
                self._count(facts.between(write.job, written, self._clock()))

    def _read(self, key: JobKey) -> Mapping[str, Any] | None:
        """Return the status of a job; empty if the job is gone, and None if the API server does not answer."""
        try:
            found = self._cluster.get(TORCHJOBS, key.name, key.namespace)
        except errors.NotFound:
            return {}
        except errors.ClusterError:
            return None
        return found.get("status") or {} if found["metadata"].get("uid") == key.uid else {}

    def _count(self, found: Iterable[Fact]) -> None:
        for fact in found:
            if fact.metric.kind == "histogram":
                self._meter.observe(fact.metric, fact.value, *fact.labels)
            else:
                self._meter.count(fact.metric, *fact.labels, by=fact.value)


class Reconciler:
    """Reconciles one key per call; shared between threads. Close it after the last call has returned."""

    def __init__(
        self,
        cluster: Cluster,
        pods: PodCache,
        settings: ReconcileSettings | None = None,
        clock: Callable[[], float] = time.time,
        caches: Caches = NO_CACHES,
        meter: Meter = NO_METER,
        tell: Tell = tell_nobody,
    ) -> None:
        """`meter` counts the events of jobs. `tell` gets the Events of their normal life, and never waits."""
        self._tell = tell
        self._cluster = cluster
        self._settings = settings or ReconcileSettings()
        self._clock = clock
        self._facts = FactCounter(cluster, meter, clock)
        self._observer = Observer(cluster, pods, self._settings, caches, clock)
        self._executor = ThreadPoolExecutor(self._settings.parallel_asks, thread_name_prefix="apply")
        self._settled: dict[JobKey, int] = {}

    def __call__(self, task: Task, holds: Callable[[], bool], raise_charge: RaiseCharge = no_store) -> float | None:
        """Bring one job a step nearer to its desired state.

        Returns the seconds after which to reconcile again, or None if an event will follow. Raises any ClusterError and
        ReconcileError; the caller tries again with a back-off.
        """
        observation, first_plan = self._observe(task)
        carry_out = partial(self._carry_out, task.times, holds, partial(raise_charge, task.key, task.token))
        outcome, met = carry_out(observation, first_plan), dict[type[Obstacle], Outcome]()
        while outcome.obstacle is not None and type(outcome.obstacle) not in met:
            met[type(outcome.obstacle)] = outcome
            observation = replace(self._observer.observe(task), obstacle=outcome.obstacle)
            outcome = carry_out(observation, self._decide(observation))
        match met.get(Blocker):
            case Outcome(obstacle=Blocker() as blocker, error=Exception() as error):
                if isinstance(outcome.obstacle, Blocker) or not (blocker.passing and is_about_requests(blocker)):
                    # The job's status shows it to the owner, the log to the admin; the queue tries again later.
                    raise error
                log.info("%s: %s", task.key, blocker.message)
                return outcome.requeue_after
        return self._settle(observation, outcome) if outcome.quiet else outcome.requeue_after

    def adopt(self, settings: ReconcileSettings) -> None:
        """Use these settings from the next key on. A reconcile that has begun keeps its settings."""
        self._settings = settings

    def run_versions(self, key: JobKey) -> RunVersions:
        """Return the versions that the last run of a key has reached. Call it once after each run.

        `pods_version` is the newest resourceVersion of the key's pods that this process has seen or created. A process
        that has seen less must not conclude that the job has no pods, or that its pods still run.
        """
        return RunVersions(self._observer.newest(key), self._settled.pop(key, 0))

    def _observe(self, task: Task) -> tuple[Observation, Plan]:
        """Return the state of a key, and its plan.

        What the leader told of the job serves only for a plan that begins with a write of its status: the API server
        refuses that write if the job has changed meanwhile. No other plan follows from what may be outdated: a run that
        then does nothing would miss the change that has called for it.
        """
        told = self._observer.observe_as_told(task)
        if told is not None and _writes_status_first(first_plan := self._decide(told)):
            return told, first_plan
        observation = self._observer.observe(task)
        self._facts.settle(observation)
        return observation, self._decide(observation)

    def _settle(self, observation: Observation, outcome: Outcome) -> float | None:
        """Plan once more with the written job. Usually nothing is left to do. Without this step, the job would be read
        again only to find that nothing is left to do."""
        after = self._observer.after(observation, outcome.written, outcome.pod)
        if after is None or not isinstance(after.job, TorchJob):
            return outcome.requeue_after
        next_plan = None if after is observation else plan(after, self._settings, self._now())
        if next_plan is not None and (next_plan.actions or next_plan.is_incomplete):
            return outcome.requeue_after
        version = after.job.metadata.resource_version
        self._settled[observation.key] = integers.parse(version, 0)
        return outcome.requeue_after if next_plan is None else next_plan.requeue_after

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _carry_out(
        self,
        times: TaskTimes | None,
        holds: Callable[[], bool],
        raise_charge: Callable[[int, Amounts], Refusal],
        observation: Observation,
        current_plan: Plan,
    ) -> Outcome:
        application = Application(
            self._cluster,
            self._settings,
            self._executor,
            self._clock,
            observation.key,
            holds,
            raise_charge,
        )
        try:
            return application.run(current_plan)
        finally:
            self._facts.note(observation, application, times)
            self._tell_of(observation, application)
            self._observer.wrote_requests(application.request_versions)
            if application.pod_versions:
                self._observer.wrote(observation.key, max(application.pod_versions))

    def _tell_of(self, observation: Observation, application: Application) -> None:
        if observation.job is None or application.written is None:
            return
        event = facts.life_event(observation.job, application.written["status"])
        if event is not None:
            self._tell(observation.key, event)

    def _decide(self, observation: Observation) -> Plan:
        """Return the plan, after the log of the pod that caused a failure and the result of the job have been read."""
        for _ in range(failure_text.MOST):
            current_plan = plan(observation, self._settings, self._now())
            if current_plan.unexplained is None:
                break
            observation = failure_text.explain_failure(self._cluster, observation, current_plan.unexplained)
        else:
            observation = failure_text.give_up(observation)
            current_plan = plan(observation, self._settings, self._now())
        givers = current_plan.result_of, current_plan.model_of
        if givers == (None, None):
            return current_plan
        return plan(failure_text.read_end(self._cluster, observation, *givers), self._settings, self._now())

    def close(self) -> None:
        """Stop the threads."""
        self._executor.shutdown()

    def __enter__(self) -> "Reconciler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _writes_status_first(planned: Plan) -> bool:
    """Return whether a write of the job's status comes before everything else that a plan does in the cluster."""
    in_cluster = (action for action in planned.actions if not isinstance(action, values.RaiseCharge))
    return isinstance(next(in_cluster, None), WriteStatus)


def _status(job: TorchJob | InvalidJob | None) -> Mapping[str, Any]:
    return {} if job is None else job.status.manifest()
