"""The reconciler: observe, plan, apply.

One rule: a worker calls it for each key. The reconciler keeps only state that it could observe again.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType

from crds import integers
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from crds.torchjob.torchjob import TorchJob
from kube.api import Cluster
from kube.process.meter import NO_METER, Meter
from queues.values import Refusal, Task
from queues.work import RunVersions
from reconcilers import failure_text, life_events
from reconcilers.apply.apply import Application, Outcome
from reconcilers.fact_counter import FactCounter
from reconcilers.observe import GonePods, Observer, PodCache
from reconcilers.plan.plan import plan
from reconcilers.plan.recovery import is_about_requests
from reconcilers.restart_support import RestartSupport
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Blocker, EmitEvent, Observation, Plan
from reconcilers.views.node_view import NodeCache
from reconcilers.views.pod_group_view import GroupCache, GroupReader
from reconcilers.views.queue_view import QueueCache
from reconcilers.views.recreate_request import RecreateCache
from reconcilers.views.request_reader import RequestReader
from reconcilers.views.scale_request_view import RequestCache

log = logging.getLogger(__name__)

RaiseCharge = Callable[[JobKey, str, int, Amounts], Refusal]
"""The function `queues.work.WorkSink.raise_charge`."""


Tell = Callable[[JobKey, EmitEvent], None]
"""The function `reconcilers.apply.life_event_writer.LifeEventWriter.tell`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """What a worker process can read beside pods; None where there are no such objects."""

    queues: QueueCache | None = None
    nodes: NodeCache | None = None
    recreations: RecreateCache | None = None
    groups: GroupCache | None = None
    requests: RequestCache | None = None
    reported_saves: Callable[[JobKey], int] | None = None
    gone_pods: GonePods | None = None


NO_CACHES = Caches()


def no_store(*_: object) -> Refusal:
    """Refuse a larger charge where there is no queue store."""
    return "pool"


def tell_nobody(*_: object) -> None:
    """Drop an Event."""


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
        """`meter` counts what happens to jobs. `tell` gets the Events of their normal life, and never waits."""
        self._tell = tell
        self._cluster = cluster
        self._settings = settings or ReconcileSettings()
        self._clock = clock
        self._facts = FactCounter(cluster, meter, clock)
        self._observer = Observer(
            cluster,
            pods,
            self._settings,
            caches.queues,
            caches.nodes,
            caches.recreations,
            clock,
            GroupReader(cluster, caches.groups, clock),
            RequestReader(cluster, caches.requests),
            RestartSupport(cluster, caches.nodes, clock),
            caches.reported_saves,
            caches.gone_pods,
        )
        self._executor = ThreadPoolExecutor(self._settings.parallel_asks, thread_name_prefix="apply")
        self._settled: dict[JobKey, int] = {}

    def __call__(self, task: Task, holds: Callable[[], bool], raise_charge: RaiseCharge = no_store) -> float | None:
        """Bring one job a step nearer to its desired state.

        Returns the seconds after which to reconcile again, or None if an event will follow. Raises any ClusterError and
        ReconcileError; the caller tries again with a back-off.
        """
        observation = self._observer.observe(task)
        self._facts.settle(observation)
        carry_out = partial(self._carry_out, holds, partial(raise_charge, task.key, task.token))
        outcome = carry_out(observation)
        if outcome.no_room is not None:
            observation = replace(self._observer.observe(task), no_room=outcome.no_room)
            outcome = carry_out(observation)
        if outcome.no_memory is not None:
            observation = replace(self._observer.observe(task), no_memory=outcome.no_memory)
            outcome = carry_out(observation)
        if outcome.over_quota is not None:
            observation = replace(self._observer.observe(task), over_quota=outcome.over_quota)
            outcome = carry_out(observation)
        if outcome.size_refused:
            observation = replace(self._observer.observe(task), size_refused=outcome.size_refused)
            outcome = carry_out(observation)
        if outcome.refused:
            observation = replace(self._observer.observe(task), refused=outcome.refused)
            outcome = carry_out(observation)
        if outcome.blocked is not None:
            blocked = outcome.blocked
            blocker = Blocker(blocked.reason, str(blocked), blocked.passing)
            outcome = carry_out(replace(self._observer.observe(task), blocker=blocker))
            if outcome.blocked is not None or not (blocker.passing and is_about_requests(blocker)):
                # The job's status shows it to the owner, the log to the admin; the queue tries again with a back-off.
                raise blocked.error
            log.info("%s: %s", task.key, blocked)
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

    def _settle(self, observation: Observation, outcome: Outcome) -> float | None:
        """Plan once more with the written job. Usually nothing is left to do. Without this step, the job would be read
        again only to find that."""
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
        self, holds: Callable[[], bool], raise_charge: Callable[[int, Amounts], Refusal], observation: Observation
    ) -> Outcome:
        current_plan = self._decide(observation)
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
            self._facts.note(observation, application)
            self._tell_of(observation, application)
            self._observer.wrote_requests(application.request_versions)
            if application.pod_versions:
                self._observer.wrote(observation.key, max(application.pod_versions))

    def _tell_of(self, observation: Observation, application: Application) -> None:
        if observation.job is None or application.written is None:
            return
        event = life_events.between(observation.job, application.written["status"])
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
        if current_plan.result_of is None:
            return current_plan
        result = failure_text.read_result(self._cluster, current_plan.result_of)
        return plan(replace(observation, result=result), self._settings, self._now())

    def close(self) -> None:
        """Stop the threads."""
        self._executor.shutdown()

    def __enter__(self) -> "Reconciler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
