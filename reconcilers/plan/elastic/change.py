"""An admitted job whose number of workers may change: the facts of the change in its status, its reservation and
its pods.

One rule: pure. The module describes the present state and how a change is written;
`reconcilers.plan.elastic.change_steps` decides the next write.

Where each world has a restart generation of its own, the write that changes the workers also begins the new world. So a
resize costs no further write, and any other worker can go on from the status.

    change                                          the world that follows
    workers are added                               the same: the added ones wait at their start gates
    all of them are at their gates                  a new one, with them
    workers that have yet to join are removed       the same
    other workers are removed                       a new one without them; it begins while they still end

A new world restarts all pods (`reconcilers.plan.in_place.restarts`), which is no failure: nothing is counted.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from crds.torchjob import conditions, grant
from crds.torchjob.status import IDLE, Admission, Resized, Saving, Scaling, Target, TorchJobStatus
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.plan import progress, rendezvous, status
from reconcilers.plan.elastic import checkpoints, current_request, unpaid
from reconcilers.plan.elastic.checkpoints import SaveRequest
from reconcilers.plan.elastic.current_request import UnderWay
from reconcilers.plan.elastic.victims import Workers
from reconcilers.plan.in_place import drivers
from reconcilers.plan.lifecycle import Active
from reconcilers.plan.moment import Moment
from reconcilers.pods import static_world
from reconcilers.pods.grants import Grant
from reconcilers.values import EmitEvent, earliest
from reconcilers.views.pod_view import PodView

JOIN_SECONDS = 600
"""The seconds in which added workers of a job without an elastic policy have to join."""
MESSAGE = "its pods are replaced, because their number has changed and their containers cannot be restarted in place"
WITH_GRACE = "its pods are replaced with their grace period, because their number has changed"


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """The next write for a change of the number of workers."""

    after: TorchJobStatus
    events: tuple[EmitEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Change:
    """An active job whose admission is written, and the store's charge for the job."""

    run: Active
    at: Moment

    @property
    def held(self) -> Reservation | None:
        """The reservation of the job's queue; None if it is of another admission, or does not count workers."""
        held = self.at.observation.reservation
        is_counted = held is not None and held.attempt == self.run.admission.attempt and held.size > 0
        return held if is_counted else None

    @cached_property
    def asked(self) -> UnderWay | None:
        """The scale request that is under way."""
        return current_request.under_way(self.at.observation)

    @property
    def now(self) -> datetime:
        """The time of this plan."""
        return self.at.now

    @property
    def granted(self) -> int:
        """The number of granted workers, including workers that are being removed."""
        return self.run.admission.workers or 0

    @property
    def reserved(self) -> int:
        """The number of workers for which room is reserved: a growth whose workers have no pods may be revoked."""
        is_same = self.held is not None and self.held.grown == (self.run.admission.grown or 0)
        return min(self.held.size, self.granted) if self.held is not None and is_same else self.granted

    @property
    def wish(self) -> int:
        """The number of workers that the owner requests."""
        return self.run.wanted.spec.worker_count

    @cached_property
    def target(self) -> Target | None:
        """The number of workers that the coordinator has decided on; None if there is no target, or if the target is
        over.

        A target is over once the owner wants that number of workers, too, unless workers are to be given back.
        """
        target = self.run.wanted.target
        if target is None or target.workers > self.wish:
            return target
        gives_back = target.reason != IDLE and target.workers < self.granted
        return target if gives_back and (self.victims or self.workers.choose(1)) else None

    @property
    def wanted(self) -> int:
        """The number of workers that the job is to have."""
        return self.wish if self.target is None else self.target.workers

    @property
    def scaling(self) -> Scaling | None:
        """The change under way."""
        return self.run.job.status.scaling

    @property
    def victims(self) -> tuple[str, ...]:
        """The pods that are being removed."""
        return self.run.job.status.victims

    @property
    def is_joining(self) -> bool:
        """Whether granted workers have yet to run."""
        return self.scaling is not None and self.scaling.deadline is not None

    @property
    def base(self) -> int:
        """The number of workers before the change."""
        return self.scaling.from_workers if self.scaling is not None and self.is_joining else self.granted

    @property
    def is_all_or_none(self) -> bool:
        """Whether all of the requested workers are added, or none; false if the owner has changed the number since."""
        return self.scaling is not None and self.scaling.to == self.wish and self.scaling.is_all_or_none

    @cached_property
    def staying(self) -> list[str]:
        """The names of the granted workers that are not being removed."""
        return [member.name for member in self.run.members.values() if member.task_type == WORKER]

    @cached_property
    def has_ended(self) -> bool:
        """Whether a worker, or a pod of its world, has succeeded: the other pods are about to succeed, and no worker is
        added.
        """
        job = self.run.job
        over = progress.completed_tasks(job) | rendezvous.find_closing_tasks(job, self.run.pods)
        if WORKER.lower() in over or rendezvous.has_succeeded(job, self.run.pods):
            return True
        workers = (pod for pod in self.run.pods if pod.task == WORKER.lower())
        return any(pod.phase == "Succeeded" and not progress.is_outdated(job, pod) for pod in workers)

    @cached_property
    def missing(self) -> list[str]:
        """The names of workers that do not run, although their stage has begun."""
        job = self.run.job
        if not progress.has_begun(job, WORKER) or not self.at.settings.make_pods:
            return []
        pods = {pod.name: pod for pod in self.run.pods}
        return [name for name in self.staying if not _has_joined(job, pods.get(name), self.joining)]

    @cached_property
    def joining(self) -> list[str]:
        """The names of the added workers that wait for their rank at a start gate, or have yet to come there."""
        return [member.name for member in self.run.members.values() if member.joins]

    @cached_property
    def save(self) -> SaveRequest:
        """The request to save that a removal waits for, or a restart with added workers."""
        scaling, removes = self.scaling, not self.victims and self.wanted < self.granted
        removal = scaling if scaling is not None and removes and scaling.to < self.granted else None
        request = removal or (self.run.job.status.saving if self.joining else None)
        if request is None:
            return SaveRequest()
        limit = None if removal is None else unpaid.longest_save(self.run, self.at, self.target, self.wanted)
        return checkpoints.pending(self.run.wanted, request.since, self.now, self.at.observation.reported_save, limit)

    @property
    def next_change(self) -> float | None:
        """The seconds after which the next write may be due although no event arrives."""
        times = (self.seconds_to_join, unpaid.seconds_to_free(self.run, self.at), *self.seconds_to_place.values())
        return earliest((*(seconds for seconds in times if seconds is not None and seconds > 0), self.save.remaining))

    def may_save(self, names: Collection[str]) -> bool:
        """Return whether the workers are asked to save before some of them are removed: this is the case if
        the owner wants it and the workers train."""
        is_running = self.run.job.status.phase == "Running" and not (self.victims or self.has_ended)
        asks = self.run.wanted.spec.scheduling_policy.checkpoint_seconds > 0 and self.wanted < self.granted
        return asks and is_running and not frozenset(names) <= frozenset((*self.missing, *self.joining))

    @property
    def is_restarting(self) -> bool:
        """Whether pods have yet to be brought into the world that has begun last."""
        return any(progress.is_outdated(self.run.job, pod) and not pod.deleting for pod in self.run.pods)

    @property
    def workers(self) -> Workers:
        """The workers from which victims are chosen."""
        pods = {pod.name: pod for pod in self.run.pods}
        leaving = self.at.observation.leaving_nodes | self.at.observation.dead_nodes
        return Workers(job=self.run.job, members=self.run.members, pods=pods, leaving_nodes=leaving)

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
        deadline = self.scaling.deadline if self.scaling is not None else None
        return self._seconds_until(deadline) if deadline is not None else None

    @cached_property
    def seconds_to_place(self) -> dict[str, float]:
        """The seconds until the workers of an elastic job have to run that left their nodes, by the name of the pod."""
        job, missing = self.run.job, frozenset(self.missing if self.run.job.status.departed else ())
        if not job.spec.is_elastic:
            return {}
        times = {name: self._seconds_until(gone.since + self.join_time) for name, gone in job.status.departed.items()}
        return {name: seconds for name, seconds in times.items() if seconds is not None and name in missing}

    def _seconds_until(self, deadline: datetime) -> float | None:
        """Return the seconds until workers have to run; None if the job as a whole does not run."""
        job = self.run.job.status
        ran = conditions.find(job.conditions, "Running")
        if job.phase != "Running" or ran is None:
            return None
        return (max(deadline, ran.last_transition_time + self.join_time) - self.now).total_seconds()

    def to(self, granted: int) -> int:
        """Return the number of workers in a change once `granted` workers are granted.

        Only the owner's workers are requested of the queue: the coordinator grants the others without a request.
        """
        return self.wanted if self.wanted < granted else max(self.wish, granted)

    def change(self, granted: int | None = None, **fields: Any) -> Scaling:
        """Return the change once this number of workers is granted: now, or by the same write. The change keeps its
        time of beginning unless `fields` say otherwise. The request and its failed tries are kept until the number
        changes.
        """
        scaling, to = self.scaling, self.to(self.granted if granted is None else granted)
        begun: dict[str, Any] = {"from_workers": self.base, "since": scaling.since if scaling is not None else self.now}
        kept: dict[str, Any] = {}
        if scaling is not None and scaling.to == to:
            kept = {"request": scaling.request, "tries": scaling.tries, "not_before": scaling.not_before}
        elif self.asked is not None and self.asked.to == to == self.wish:
            kept = {"request": self.asked.label}
        return Scaling(**{"to": to, **begun, **kept, **fields})

    def write(
        self,
        scaling: Scaling | None,
        events: tuple[EmitEvent, ...] = (),
        admission: Admission | None = None,
        *,
        join: bool = False,
        **fields: Target | Resized | Saving | None,
    ) -> ChangeStep:
        """Return the write of a change, of an admission and of other fields of the status; with `join`, workers that
        wait for their rank get the rank. A target that is over is removed by the way."""
        wanted, granted = self.run.wanted, admission or self.run.job.status.admission
        update = {"scaling": scaling, "admission": granted, "target": self.target, **fields}
        after = status.observe_generation(self.run.job).model_copy(update=update)
        in_place = drivers.can_restart_any(self.run.job, self.run.pods, self.at.settings)
        with_grace = in_place and checkpoints.must_replace(self.run.wanted, self.run.pods)
        world = follow_world(wanted, after, self.now, join=join, in_place=in_place, with_grace=with_grace)
        return ChangeStep(world, events)


def _has_joined(job: TorchJob, pod: PodView | None, joining: Collection[str]) -> bool:
    """Return whether a worker runs, or waits for nothing but its rank."""
    if pod is None or progress.is_outdated(job, pod):
        return False
    at_gate = pod.name in joining and pod.waits and not pod.deleting
    return at_gate or pod.phase == "Succeeded" or (pod.running and not pod.gated)


def follow_world(
    job: TorchJob,
    after: TorchJobStatus,
    now: datetime,
    *,
    join: bool = False,
    in_place: bool = True,
    with_grace: bool = False,
) -> TorchJobStatus:
    """Return a status in which the workers of a job have changed, with the world that follows from the change.

    `join` tells that workers which waited at their gates join the others, `in_place` whether the containers of pods can
    be restarted; otherwise pods are replaced, and the job does not run meanwhile. `with_grace` tells that pods are
    replaced all the same, to keep their grace.
    """
    before, then = job.status.admission, after.admission
    if before is None or then is None or not static_world.has_worlds(job, then):
        return after
    old, staying = Grant(job, before).world, Grant(job.model_copy(update={"status": after}), then).staying
    remaining = tuple(index for index in staying if index in frozenset(old))
    world = staying if join or after.scaling is None or not remaining else remaining
    if after.scaling is not None:
        together = None if world == staying else grant.name_indexes(world)
        after = after.model_copy(update={"scaling": after.scaling.model_copy(update={"world": together})})
    return after if world == old else _begin_world(job, after, now, in_place=in_place, with_grace=with_grace)


def _begin_world(
    job: TorchJob, after: TorchJobStatus, now: datetime, *, in_place: bool, with_grace: bool
) -> TorchJobStatus:
    """Begin a world: it has all pods with another restart generation."""
    number = after.restart_generation + 1
    begun = after.model_copy(update={"restart_generation": number, "replacing": ()})
    if with_grace:
        begun = begun.model_copy(update={"recreate_generation": number})
    if (in_place and not with_grace) or begun.phase != "Running":
        return begun
    message = WITH_GRACE if with_grace else MESSAGE
    return status.enter(job.model_copy(update={"status": begun}), "Admitted", "Restarting", message, now)
