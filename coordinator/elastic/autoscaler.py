"""The leader's step that changes the numbers of workers: it plans, claims room, writes targets and grants idle growth.

One rule: one thread, after a round of picks, when a plan is due (`PlanTimes`). The knowledge that
the autoscaler remembers only delays a change, so a new leader that remembers nothing does no harm.

A growth has two steps. The target is written first, so that a worker process takes up the grant of the store. The store
grants a growth once the watch shows the target, and only if the newest plan still wants the growth.
"""

import logging
import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.cache.routing_rules import RoutingRules, RulesSource
from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.elastic import elastic_jobs, targets
from coordinator.elastic.elastic_jobs import Circumstances
from coordinator.elastic.idle_history import Memory
from coordinator.elastic.targets import Decision
from coordinator.reports.report_store import ReportReader
from coordinator.routing import held_charges
from coordinator.settings import Settings
from coordinator.status_lane import JobLane
from crds.keys import JobKey
from crds.resources import amounts
from crds.torchjob.status import IDLE
from queues.errors import QueueError
from queues.pick_cycle import PickCycle
from queues.resizing.values import ElasticJob, Plan, Resize
from queues.store import IdleGrowth, QueueStore

INTERVAL_SECONDS = 1.0
"""The least number of seconds between two plans."""
LONGEST_SECONDS = 60.0
"""The most seconds between two plans, if nothing has changed that anybody knows."""
GAIN_SECONDS = 10.0
"""The least number of seconds between two readings of reports."""
PLAN = "the plan of resizes"
log = logging.getLogger(__name__)


class _Known(NamedTuple):
    """A job as the last plan took it, for the same view and rules."""

    job: JobView
    rules: RoutingRules
    elastic: ElasticJob | None


@dataclass(slots=True)
class PlanTimes:
    """When the next plan is due: a plan follows from its inputs and from the time. If none of these inputs can
    have changed, the plan would be equal to the last plan, and is not made. Times are seconds since 1970."""

    _planned_at: float = -math.inf
    _state: Hashable = None
    _open_until: float = math.inf

    def is_early(self, now: float) -> bool:
        """Return whether the last plan is too recent for another plan. The clock may have been set back."""
        return abs(now - self._planned_at) < INTERVAL_SECONDS

    def is_due(self, state: Hashable, now: float) -> bool:
        """Return whether a plan is due. `state` changes with all that a plan is made of, but for the time."""
        return state != self._state or now <= self._open_until or abs(now - self._planned_at) >= LONGEST_SECONDS

    def wait(self, now: float) -> None:
        """Record that no plan could be made. The next plan is due after the least time."""
        self._planned_at, self._state = now, None

    def note(
        self, state: Hashable, jobs: Iterable[ElasticJob], now: float, *, acts: bool, patient_until: float = -math.inf
    ) -> None:
        """Record a plan. If a plan changes nothing (`acts`), time alone may change the next plan until room has been
        idle for long enough, jobs have rested for long enough, and waiting jobs have lost their patience
        (`patient_until`).
        """
        self._planned_at = now
        if acts:
            self._state, self._open_until = state, math.inf
        elif state != self._state or self._open_until == math.inf:
            ends = [max(now + job.idle_seconds, job.resting_until) for job in jobs if job.resting_until < math.inf]
            self._state, self._open_until = state, max([*ends, patient_until, now]) + INTERVAL_SECONDS


@dataclass(slots=True)
class Autoscaler:
    """The changes of numbers of workers during one term of the leader."""

    watches: Watches
    store: QueueStore
    settings: Settings
    pick_cycle: PickCycle
    configuration: RulesSource
    lowering: Container[JobKey]
    """The jobs of whose charge a part is still to be freed."""
    lane: JobLane | None
    """Where targets are put; None: no job is resized."""
    memory: Memory
    clock: Callable[[], float]
    reports: ReportReader | None = None
    """What training code reports; None: nothing is known of it."""
    _looked_at: float = float("-inf")
    _times: PlanTimes = field(default_factory=PlanTimes)
    _known: dict[JobKey, _Known] = field(default_factory=dict)

    def step(self) -> bool:
        """Plan and act if a plan is due; return whether the next round of picks may find new picks."""
        now = self.clock()
        if self.lane is None or self._times.is_early(now):
            return False
        if not (len(self.watches.autoscaled) or self.pick_cycle.claims):
            self.memory.forget_idle_room()
            return False
        if not self._times.is_due(self._state(), now):
            return False
        jobs, state = {job.key: job for job in self.watches.autoscaled.values()}, self._state()
        self._look_at_gains(jobs, now)
        circumstances = self._circumstances(jobs, now)
        elastic = self._elastic(jobs.values(), circumstances)
        plan = self._plan(elastic, now)
        if plan is None:
            self._times.wait(now)
            return False
        self.memory.update(jobs, plan.idle_since, now)
        self.memory.seen = plan.seen
        acts = bool(plan.resizes or plan.claims or plan.hasten or plan.needed or plan.seen)
        unsettled = acts or self._has_unsettled(jobs, circumstances)
        self._times.note(state, elastic, now, acts=unsettled, patient_until=plan.patient_until)
        claimed = self._claim(plan)
        return self._grow(self._decide(jobs, plan, circumstances)) or claimed

    def _state(self) -> tuple[object, ...]:
        """Return a value that changes with all that a plan is made of, but for the time."""
        return self.watches.autoscaled.version, id(self.configuration.rules()), self.pick_cycle.known

    def _has_unsettled(self, jobs: Mapping[JobKey, JobView], circumstances: Circumstances) -> bool:
        """Return whether a job may go into the next plan in another state although its view is the same, because the
        job is watched for a while.
        """
        if self.reports is not None and any(_is_judged_by_reports(job) for job in jobs.values()):
            return True
        return not all(elastic_jobs.is_settled(job, circumstances) for job in jobs.values())

    def _circumstances(self, jobs: Mapping[JobKey, JobView], now: float) -> Circumstances:
        doubtful = [key for key, job in jobs.items() if key in self.lowering or _is_growth_written(job)]
        held = self.store.reservations(doubtful) if doubtful else {}
        return self.memory.circumstances(self.configuration.rules(), now, self.watches.requests.is_under_way, held)

    def _elastic(self, jobs: Iterable[JobView], circumstances: Circumstances) -> list[ElasticJob]:
        """Return the jobs as a plan takes them. A job that causes an error is skipped."""
        known: dict[JobKey, _Known] = {}
        found = []
        for job in jobs:
            try:
                elastic = self._one(job, circumstances, known)
            except Exception as error:
                self.watches.skip(job.key, error)
                continue
            if elastic is not None:
                found.append(elastic)
        self._known = known
        return found

    def _one(self, job: JobView, circumstances: Circumstances, known: dict[JobKey, _Known]) -> ElasticJob | None:
        """Return one job as a plan takes it: unchanged, if neither the job nor its circumstances have changed."""
        before, rules = self._known.get(job.key), circumstances.rules
        if not elastic_jobs.is_settled(job, circumstances):
            return elastic_jobs.of(job, circumstances)
        if before is None or before.job is not job or before.rules is not rules:
            before = _Known(job, rules, elastic_jobs.of(job, circumstances))
        known[job.key] = before
        return before.elastic

    def _plan(self, jobs: list[ElasticJob], now: float) -> Plan | None:
        """Return the newest plan, which is empty where autoscaling is off; None if there is no plan yet.

        There is none if the last round of picks did not stand. An error in the plan never keeps jobs from being picked.
        """
        if self.settings.autoscale == "off":
            return Plan()
        with self.watches.errors.skipping(PLAN):
            return self.pick_cycle.plan_resizes(jobs, now, self.memory.idle_since, self.memory.seen)
        return None

    def _claim(self, plan: Plan) -> bool:
        """Keep room for the jobs to which others give back, whoever opened their claims; return whether the next round
        of picks begins differently."""
        changes = dict(self.pick_cycle.claims) != dict(plan.claims)
        if changes:
            self.pick_cycle.replace_claims(plan.claims)
        for queue, key in plan.hasten.items():
            self.pick_cycle.hasten(queue, key)
        return changes or bool(plan.hasten)

    def _decide(self, jobs: Mapping[JobKey, JobView], plan: Plan, circumstances: Circumstances) -> list[IdleGrowth]:
        """Put the new targets; return the growths that the store is to grant. A job that causes an error
        is skipped."""
        resizes, growths = {resize.key: resize for resize in plan.resizes}, []
        for key, job in jobs.items():
            try:
                growth = self._act(job, resizes.get(key), plan, circumstances)
            except Exception as error:
                self.watches.skip(key, error)
                continue
            if growth is not None:
                growths.append(growth)
        return growths

    def _act(self, job: JobView, resize: Resize | None, plan: Plan, circumstances: Circumstances) -> IdleGrowth | None:
        """Put the new target of a job, if the job needs one; return the growth that the job is to be granted."""
        key, now, lane = job.key, circumstances.now, self.lane
        if lane is None or lane.is_under_way(key):
            return None
        held, admission = circumstances.held.get(key), job.admission
        if admission is not None and held_charges.is_unwritten_growth(admission, held):
            return None
        decision = self._judge(job, resize, plan, now)
        if decision.writes:
            target = decision.target.manifest() if decision.target is not None else None
            lane.put(key, {"target": target}, job.version)
        else:
            lane.discard(key, "target")
        if decision.late:
            self.memory.refuse(job, now)
        return _growth(job, decision) if decision.grow else None

    def _judge(self, job: JobView, resize: Resize | None, plan: Plan, now: float) -> Decision:
        """Return the decision about the target of a job. A job that gives back need not go back first."""
        gain = self.memory.gains.small.get(job.key)
        if gain is not None and self.settings.autoscale == "on" and (resize is None or resize.reason == IDLE):
            decision = targets.go_back(job, gain.workers, gain.message, now)
            if decision.writes:
                return decision
        return targets.decide(job, resize, plan.needed, now)

    def _look_at_gains(self, jobs: Mapping[JobKey, JobView], now: float) -> None:
        """Judge the growths of the jobs that ask for it, if that is due. Without reports, no job is judged."""
        if self.reports is None or abs(now - self._looked_at) < GAIN_SECONDS:
            return
        self._looked_at = now
        judged = {key: job for key, job in jobs.items() if _is_judged_by_reports(job)}
        if not (judged or self.memory.gains.small):
            return
        try:
            self.memory.gains.look(judged, self.reports.read(judged) if judged else {})
        except QueueError as error:  # reports may be lost, and nothing else waits for them
            log.debug("gains: %s", error)

    def _grow(self, growths: list[IdleGrowth]) -> bool:
        """Let the store grant growths; return whether the store granted a growth. A growth that the store refuses is
        judged anew.
        """
        refusals = self.pick_cycle.grow_idle(growths) if growths else []
        for growth, refused in zip(growths, refusals, strict=True):
            if refused:
                log.debug("idle growth of %s refused: %s", growth.key, refused)
        return not all(refusals)


def _is_judged_by_reports(job: JobView) -> bool:
    """Return whether the owner of a job allows to take back growths that make the job slower."""
    scaling = job.autoscaling
    return scaling is not None and scaling.on and scaling.least_gain > 0


def _is_growth_written(job: JobView) -> bool:
    """Return whether the target of a job says that it grows."""
    scaling, admission = job.autoscaling, job.admission
    target = scaling.in_force if scaling is not None else None
    return target is not None and admission is not None and target.workers > (admission.workers or 0)


def _growth(job: JobView, decision: Decision) -> IdleGrowth:
    assert job.admission is not None
    assert job.workers is not None
    return IdleGrowth(
        key=job.key,
        attempt=job.admission.attempt,
        grown=job.admission.grown or 0,
        workers=decision.grow,
        charge=amounts.scale(job.workers.share, decision.grow),
    )
