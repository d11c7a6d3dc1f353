"""The change of the number of workers of an admitted job: one write of its status at a time.

One rule: pure. Each step follows from the status, the reservation and the pods, so that any other worker can go on. A
growth is granted by the store, then written, and only then are its pods made. A pod is named as a victim before it is
deleted, and the job is charged for it until it no longer exists.

    found                                                   written
    the reservation has grown, and that is still wanted     the grant, and until when the added workers have to join
    the reservation has grown, but that is not wanted       that the growth was declined
    no named victim exists any more                         the smaller grant
    more workers than are wanted, or than are reserved      victims
    all added workers run, or wait for their rank           the end of the change; the rest goes on waiting
    the time to join is over                                victims: the workers that did not join
    a removal of running workers, where the job can save    the change; the victims once the workers have saved
    another number of workers is wanted than granted        the change, as the request that the queue waits with

A change does not restart the job: it keeps its start time, its counts, its attempt and its port. In the mode
InPlaceRestart it restarts the containers of all pods (`reconcilers.plan.worlds`). Once a worker has succeeded nothing
grows any more.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from crds.torchjob import conditions, grant
from crds.torchjob.status import Admission, Scaling, TorchJobStatus
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.plan import progress, rendezvous, restart_counts, status
from reconcilers.plan.lifecycle import Active
from reconcilers.plan.restarts import REQUESTING_DRIVERS
from reconcilers.plan.scale_requests import current, resize_events
from reconcilers.plan.scale_requests.current import UnderWay
from reconcilers.plan.victims import Workers
from reconcilers.plan.worlds import changes, checkpoints
from reconcilers.plan.worlds.checkpoints import SaveRequest
from reconcilers.pods import grants
from reconcilers.settings import ReconcileSettings
from reconcilers.values import EmitEvent, Observation, earliest
from reconcilers.views.pod_view import PodView

JOIN_SECONDS = 600
"""The seconds in which added workers of a job without an elastic policy have to join."""
ALL_OR_NONE = "ScaleOut/"
"""How `status.scaling.request` begins where all of the requested workers are added, or none."""


@dataclass(frozen=True, slots=True)
class ScalingStep:
    """The next write for a change of the number of workers."""

    after: TorchJobStatus
    events: tuple[EmitEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Resize:
    """An active job whose admission is written, and what the store holds for it."""

    run: Active
    held: Reservation | None
    """The reservation of the job's queue; None if it is of another admission, or does not count workers."""
    leaving_nodes: frozenset[str]
    asked: UnderWay | None = None
    """The scale request that is under way."""
    settings: ReconcileSettings
    now: datetime

    @property
    def granted(self) -> int:
        """The number of granted workers, those that are being removed included."""
        return self.run.admission.workers or 0

    @property
    def grown(self) -> int:
        """The number of growths that are written."""
        return self.run.admission.grown or 0

    @property
    def reserved(self) -> int:
        """The number of workers for which room is reserved: a growth whose workers have no pods may be revoked."""
        is_same = self.held is not None and self.held.grown == self.grown
        return min(self.held.size, self.granted) if self.held is not None and is_same else self.granted

    @property
    def wish(self) -> int:
        """The number of workers that the owner requests."""
        return self.run.wanted.spec.worker_count

    @property
    def scaling(self) -> Scaling | None:
        """The change under way."""
        return self.run.job.status.scaling

    @property
    def victims(self) -> tuple[str, ...]:
        """The pods that are being removed."""
        return self.scaling.victims if self.scaling is not None else ()

    @property
    def is_joining(self) -> bool:
        """Whether granted workers have yet to run."""
        return self.scaling is not None and self.scaling.deadline is not None

    @property
    def base(self) -> int:
        """The number of workers before the change."""
        return self.scaling.from_workers if self.scaling is not None and self.is_joining else self.granted

    @property
    def request(self) -> str:
        """The request on whose behalf the number changes; empty if the owner has changed it again since."""
        return self.scaling.request if self.scaling is not None and self.scaling.to == self.wish else ""

    @cached_property
    def staying(self) -> list[str]:
        """The names of the granted workers that are not being removed."""
        return [member.name for member in self.run.members.values() if member.task_type == WORKER]

    @cached_property
    def has_ended(self) -> bool:
        """Whether a worker, or a pod that it meets, has succeeded: the others are about to, and no worker is added any
        more."""
        job = self.run.job
        if WORKER.lower() in progress.completed_tasks(job) or rendezvous.has_succeeded(job, self.run.pods):
            return True
        workers = (pod for pod in self.run.pods if pod.task == WORKER.lower())
        return any(pod.phase == "Succeeded" and not progress.is_outdated(job, pod) for pod in workers)

    @cached_property
    def missing(self) -> list[str]:
        """The names of workers that do not run, although their stage has begun."""
        job = self.run.job
        begun = any(WORKER in stage.tasks for stage in progress.begun_stages(job))
        if not begun or not self.settings.make_pods:
            return []
        pods = {pod.name: pod for pod in self.run.pods}
        return [name for name in self.staying if not _has_joined(job, pods.get(name), self.joining)]

    @cached_property
    def joining(self) -> list[str]:
        """The names of the added workers that wait for their rank at a start gate, or have yet to come there."""
        return [member.name for member in self.run.members.values() if member.joins]

    @cached_property
    def save(self) -> SaveRequest:
        """The request to save that a removal waits for."""
        if self.scaling is None or self.victims or max(self.scaling.to, self.wish) >= self.granted:
            return SaveRequest()
        return checkpoints.pending(self.run.wanted, self.scaling, self.now)

    @property
    def next_change(self) -> float | None:
        """The seconds after which the next write may be due although no event arrives."""
        is_late = self.seconds_to_join is not None and self.seconds_to_join <= 0
        return earliest((None if is_late else self.seconds_to_join, self.save.remaining))

    def may_save(self, names: Collection[str]) -> bool:
        """Return whether the workers are asked to save before some of them are removed: the owner wants that, and
        they train."""
        is_running = self.run.job.status.phase == "Running" and not (self.victims or self.has_ended)
        asks = self.run.wanted.spec.scheduling_policy.checkpoint_seconds > 0 and self.wish < self.granted
        return asks and is_running and not frozenset(names) <= frozenset((*self.missing, *self.joining))

    @property
    def is_restarting(self) -> bool:
        """Whether pods have yet to be brought into the world that has begun last."""
        return any(progress.is_outdated(self.run.job, pod) and not pod.deleting for pod in self.run.pods)

    @property
    def workers(self) -> Workers:
        """The workers from which victims are chosen."""
        pods = {pod.name: pod for pod in self.run.pods}
        return Workers(job=self.run.job, members=self.run.members, pods=pods, leaving_nodes=self.leaving_nodes)

    @property
    def join_time(self) -> timedelta:
        """The time in which added workers have to run."""
        policy = self.run.wanted.spec.torch_elastic_policy
        return timedelta(seconds=policy.join_timeout_seconds if policy is not None else JOIN_SECONDS)

    @property
    def seconds_to_join(self) -> float | None:
        """The seconds until added workers have to run; None if none are added, or the job as a whole does not run.

        After a restart of the whole job, their time begins again.
        """
        scaling, ran = self.scaling, conditions.find(self.run.job.status.conditions, "Running")
        if scaling is None or scaling.deadline is None or self.run.job.status.phase != "Running" or ran is None:
            return None
        end = max(scaling.deadline, ran.last_transition_time + self.join_time)
        return (end - self.now).total_seconds()

    def step(self) -> ScalingStep | None:
        """Return the next write; None if none is due."""
        if self.run.admission.workers is None or self.run.admission.grown is None:
            return None
        return _take_up(self) or _finish_removal(self) or _remove(self) or _follow_join(self) or _follow_wish(self)

    def change(self, **fields: Any) -> Scaling:
        """Return the change to the requested number. The request and its failed tries count until that changes."""
        scaling = self.scaling
        kept: dict[str, Any] = {}
        if scaling is not None and scaling.to == self.wish:
            kept = {"request": scaling.request, "tries": scaling.tries, "not_before": scaling.not_before}
        elif self.asked is not None and self.asked.to == self.wish:
            kept = {"request": self.asked.label}
        return Scaling(**{"to": self.wish, **kept, **fields})

    def write(
        self,
        scaling: Scaling | None,
        events: tuple[EmitEvent, ...] = (),
        admission: Admission | None = None,
        *,
        join: bool = False,
    ) -> ScalingStep:
        """Return the write of a change, and of an admission; with `join`, workers that wait for their rank get it."""
        update = {"scaling": scaling, "admission": admission or self.run.job.status.admission}
        after = status.observe_generation(self.run.job).model_copy(update=update)
        in_place = self.settings.in_place in REQUESTING_DRIVERS
        return ScalingStep(changes.follow(self.run.wanted, after, self.now, join=join, in_place=in_place), events)


def resize(run: Active, observation: Observation, settings: ReconcileSettings, now: datetime) -> Resize:
    """Return the change of the number of workers of an active job."""
    held = observation.reservation
    is_counted = held is not None and held.attempt == run.admission.attempt and held.size > 0
    leaving = observation.leaving_nodes | observation.dead_nodes
    return Resize(
        run=run,
        held=held if is_counted else None,
        leaving_nodes=leaving,
        asked=current.under_way(observation),
        settings=settings,
        now=now,
    )


def _take_up(job: Resize) -> ScalingStep | None:
    """Write what the store has granted beyond the admission, as far as it is still wanted."""
    held, admission = job.held, job.run.admission
    if held is None or held.grown <= job.grown:
        return None
    to = _acceptable(job, held.size)
    if to <= job.granted:
        declined = admission.model_copy(update={"grown": held.grown, "declined": held.grown})
        return job.write(_after_declining(job), admission=declined)
    change = {
        "workers": to,
        "indexes": grant.format_indexes(grants.add_indexes(admission, job.granted, to)),
        "charge": dict(
            held.charge if to == held.size else grants.grown_charge(job.run.wanted, admission, to, held.charge)
        ),
        "grown": held.grown,
        "declined": held.grown if to < held.size else 0,
    }
    since = job.scaling.since if job.scaling is not None else job.now
    scaling = job.change(from_workers=job.base, since=since, deadline=job.now + job.join_time, not_before=None)
    return job.write(scaling, admission=admission.model_copy(update=change))


def _after_declining(job: Resize) -> Scaling | None:
    """Return the change that goes on after a growth was declined.

    It asks for no more than is wanted, or the queue would grant the same growth again before the next write.
    """
    scaling = job.scaling
    if scaling is None or job.victims:
        return scaling
    if job.has_ended or (job.wish <= job.granted and not job.is_joining):
        return None
    return job.change(from_workers=job.base, since=scaling.since, deadline=scaling.deadline)


def _acceptable(job: Resize, size: int) -> int:
    """Return how many workers of a larger reservation are still wanted."""
    to = min(size, job.wish)
    is_part = to < job.wish and job.request.startswith(ALL_OR_NONE)
    return job.granted if job.has_ended or job.victims or is_part else to


def _finish_removal(job: Resize) -> ScalingStep | None:
    """Write the smaller grant once none of the victims exists."""
    scaling, victims = job.scaling, frozenset(job.victims)
    if scaling is None or not victims or any(pod.name in victims for pod in job.run.removed):
        return None
    left = len(job.staying)
    revoked = job.held.charge if job.held is not None and job.reserved < job.granted else None
    change = {
        "workers": left,
        "indexes": grant.format_indexes(job.run.members[name].index for name in job.staying),
        "charge": grants.charge_left(job.run.wanted, job.run.admission, left, revoked),
        "declined": 0,
    }
    admission, rest = job.run.admission.model_copy(update=change), _after_removal(job, scaling, left)
    if scaling.to >= job.granted:
        return job.write(rest, admission=admission)
    step = job.write(rest, (resize_events.scaled(scaling, job.granted, left, job.now),), admission)
    return replace(step, after=restart_counts.count_removal(job.run.job, step.after))


def _after_removal(job: Resize, scaling: Scaling, left: int) -> Scaling | None:
    """Return the change that goes on after a removal: other workers have yet to join, or another number is wanted."""
    if job.is_joining and scaling.from_workers < left and (job.missing or job.joining):
        return job.change(from_workers=scaling.from_workers, since=scaling.since, deadline=scaling.deadline)
    if job.wish == left or job.has_ended:
        return None
    return job.change(from_workers=left, since=scaling.since if job.wish <= scaling.to else job.now)


def _remove(job: Resize) -> ScalingStep | None:
    """Name the workers that the job loses, because fewer are wanted or reserved. Named victims stay victims."""
    limit = job.reserved if job.has_ended else min(job.wish, job.reserved)
    names = _leaving(job, len(job.staying) - limit)
    if not names or (job.is_restarting and not frozenset(names) <= frozenset(job.joining)):
        return None
    scaling, since, deadline = job.scaling, job.now, None
    if scaling is not None:
        goes_on = scaling.to == job.wish or scaling.to < job.granted
        since, deadline = scaling.since if goes_on else job.now, scaling.deadline
    if job.may_save(names):
        if scaling is None or scaling.to >= job.granted:
            return job.write(job.change(from_workers=job.base, since=job.now, deadline=deadline))
        if job.save.remaining is not None:
            return None
    victims = (*job.victims, *names)
    return job.write(job.change(from_workers=job.base, since=since, deadline=deadline, victims=victims))


def _leaving(job: Resize, surplus: int) -> tuple[str, ...]:
    """Return the workers to remove: first those that a request names, and all of them if it names exactly
    these."""
    asked = job.asked
    if asked is None or asked.to != job.wish or job.has_ended:
        return job.workers.choose(surplus)
    named = [name for name in asked.victims if name in job.staying]
    others = (name for name in job.workers.choose(len(job.staying)) if name not in named)
    return (*named, *others)[: max(surplus, len(named) if asked.exact else 0, 0)]


def _follow_join(job: Resize) -> ScalingStep | None:
    """End a growth whose workers all run, or give up those that did not join in time."""
    scaling, seconds = job.scaling, job.seconds_to_join
    if scaling is None or not job.is_joining or job.victims:
        return None
    if not job.missing and not (job.joining and job.has_ended):
        waits, tries = job.wish > job.granted and not job.has_ended, scaling.tries if scaling.not_before else 0
        rest = job.change(from_workers=job.granted, since=scaling.since, tries=tries) if waits else None
        return job.write(rest, (resize_events.scaled(scaling, scaling.from_workers, job.granted, job.now),), join=True)
    if job.has_ended:
        victims = tuple(job.joining) or _late_workers(job, scaling)
        return job.write(job.change(from_workers=job.base, since=scaling.since, victims=victims))
    return _give_up(job, scaling) if seconds is not None and seconds <= 0 else None


def _give_up(job: Resize, scaling: Scaling) -> ScalingStep | None:
    """Name the added workers that did not join as victims. The rest of the request waits again after a pause."""
    victims, tries = _late_workers(job, scaling), scaling.tries + 1
    if not victims:  # they wait for a pod that is never removed, or that is being replaced
        return None
    pause = timedelta(seconds=status.pause(job.run.job, tries, job.settings.admission_backoff))
    change = {"since": scaling.since, "victims": victims, "tries": tries, "not_before": job.now + pause}
    change["deadline"] = scaling.deadline if job.joining else None  # the others at their gates join later
    return job.write(job.change(from_workers=job.base, **change), (resize_events.not_joined(victims, job.join_time),))


def _late_workers(job: Resize, scaling: Scaling) -> tuple[str, ...]:
    """Return the workers to give up; all those that a request has added, if it adds all or none."""
    ours = job.asked.added if job.asked is not None else ()
    added, is_whole = job.granted - scaling.from_workers, job.request.startswith(ALL_OR_NONE)
    late = [name for name in job.missing if name in job.joining] if job.joining else job.missing
    return job.workers.choose_late(late, added, job.run.wanted.spec.worker_range, ours if is_whole else None)


def _follow_wish(job: Resize) -> ScalingStep | None:
    """Write that more workers are wanted, or that no more are wanted."""
    scaling = job.scaling
    if job.victims or job.save.remaining is not None:
        return None
    if not job.is_joining and (job.wish <= job.granted or job.has_ended):
        return job.write(None) if scaling is not None else None
    if scaling is not None and scaling.to == job.wish:
        return None
    # Who asks for more is as old as the new request; who asks for less does not lose his place.
    since = scaling.since if scaling is not None and job.wish < scaling.to else job.now
    deadline = scaling.deadline if scaling is not None else None
    return job.write(job.change(from_workers=job.base, since=since, deadline=deadline))


def _has_joined(job: TorchJob, pod: PodView | None, joining: Collection[str]) -> bool:
    """Return whether a worker runs, or waits for nothing but its rank."""
    if pod is None or progress.is_outdated(job, pod):
        return False
    at_gate = pod.name in joining and pod.waits and not pod.deleting
    return at_gate or pod.phase == "Succeeded" or (pod.running and not pod.gated)
