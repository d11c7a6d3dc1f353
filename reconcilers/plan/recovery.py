"""What a job that holds its room does about pods that failed, are lost, or are to be restarted.

One rule: pure, a ladder: what happened is counted before anything is done about it, and what is counted is seen to
before anything else is made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from crds.api_resources import RECREATE_REQUESTS
from crds.torchjob import restart_requests as asked
from crds.torchjob.restart_requests import RestartRequest
from crds.torchjob.status import StageStatus, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, failures, progress, restart_counts, restarts, status
from reconcilers.plan.failures import Fault
from reconcilers.plan.pod_deletion import Departures
from reconcilers.plan.restarts import Restarts
from reconcilers.pods.task_members import Member
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, DeletePods, Hindrance, Observation, Tell
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True)
class Recovery:
    """What is to be done first."""

    after: TorchJobStatus | None = None
    """To be written before the actions; nothing else is done then."""
    ended: bool = False
    """Whether that is the end of the job."""
    before: tuple[Action, ...] = ()
    """To be done before it is written, since it may be done twice."""
    actions: tuple[Action, ...] = ()
    blocked: bool = False
    """Whether nothing else may be done for now."""
    again: float | None = None
    unexplained: PodView | None = None
    """The pod that is to blame, if more is known of its end than the observation holds: asked for before all else."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A job that holds its room, its pods, and what is known of where they are."""

    job: TorchJob
    pods: tuple[PodView, ...]
    members: Mapping[str, Member]
    observation: Observation
    settings: ReconcileSettings
    departures: Departures
    now: datetime

    def recover(self) -> Recovery:
        """The first thing that has to be done, if there is any."""
        stays = self._stay()
        if stays is not None:
            return stays
        found = self._faults()
        if found:
            return self._set_back(found)
        request = asked.requested(self.job)
        if request is not None:
            return self._obey(request)
        stuck = self.departures.stuck(self.pods)
        if stuck and not status.is_hindered(self.job.status):
            message = self.departures.what_holds(stuck)
            told = Tell(status.PODS_STUCK, message, warning=True)
            return Recovery(status.stuck(self.job, message, self.now), actions=(told,))
        if (
            len(self.pods) == len(self.members)
            and restart_counts.current(self.job, self.pods) != self.job.status.replacing
        ):
            # All are back: what became of those before them excuses nobody who vanishes from now on.
            return Recovery(restart_counts.given_up(self.job, (), self.pods))
        return self._go_on()

    @cached_property
    def _restarts(self) -> Restarts:
        outdated = any(pod.restart != self.job.status.restart_generation for pod in self.pods)
        return Restarts(
            job=self.job,
            pods=self.pods,
            requests=self.observation.recreations,
            leads=frozenset(each.lead for each in self.members.values()) if outdated else frozenset(),
            departures=self.departures,
            settings=self._able,
            waits=backoff.waits_whole(self.job.status, self.settings, self.now),
        )

    @property
    def _able(self) -> ReconcileSettings:
        """The settings; where no request can be made, just now or at all, without restarts in place."""
        refused = is_about_requests(self.observation.hindrance) or RECREATE_REQUESTS not in self.settings.served
        if self.settings.in_place == "kruise" and refused:
            return replace(self.settings, in_place="recreate")
        return self.settings

    def _refused(self) -> tuple[Action, ...]:
        said = self.observation.hindrance
        if said is None or not is_about_requests(said):
            return ()
        number = f"restart {self.job.status.restart_generation}"
        message = f"{number}: pods are replaced, their containers cannot be restarted in place: {said.message}"
        return (Tell("NotRestartedInPlace", message, warning=True),)

    def _faults(self) -> list[Fault]:
        dead, behind = self.departures.dead, progress.behind(self.job)
        needed = (pod for pod in self.pods if pod.task not in behind)
        seen = failures.faults(self.job, needed, dead, self._restarts.restarting() | self._seen_later())
        return [*seen, *self._vanished()]

    def _seen_later(self) -> frozenset[str]:
        """The uids of pods that their nodes restart, while the job backs off: their restarts are counted together when
        that is over. A node may restart containers as often as it likes, each would be a write."""
        if backoff.left(self.job.status, self.settings, self.now) <= 0:
            return frozenset()
        return frozenset(pod.uid for pod in self.pods if pod.self_healing)

    def _vanished(self) -> list[Fault]:
        """Pods that were all there, as the job ran, and of which somebody took one away at once.

        Only where that concerns the others: where it does not, it is made again and nobody need know.
        """
        if self.job.status.phase != "Running" or len(self.pods) == len(self.members):
            return []
        there = {pod.name for pod in self.pods}
        passed = progress.of(self.job, self.pods).passed
        missing = [each for name, each in self.members.items() if name not in there and each.task_type not in passed]
        taken = {mark.partition("/")[0] for mark in self.job.status.replacing} - {pod.uid for pod in self.pods}
        if len(missing) <= len(taken):  # by us: they are counted, or their owner wanted it
            return []
        return [
            fault
            for each in missing
            if self._all_were_there(each.task_type)
            if failures.is_whole(self.job, (fault := failures.vanished(self.job, each.name, each.task_type)).pod)
        ]

    def _all_were_there(self, task_type: str) -> bool:
        found = self.job.status.task_statuses.get(task_type)
        wanted = self.job.spec.torch_task_specs[task_type].num_tasks
        return found is not None and found.active + found.succeeded >= wanted

    def _set_back(self, found: list[Fault]) -> Recovery:
        job, now = self.job, self.now
        verdict = failures.judge(job, found, self.settings.most_disruptions, now.timestamp())
        if verdict.wait and any(pod.started for pod in self.pods):
            return Recovery(blocked=True, again=verdict.wait)
        if found[0].pod.unexplained:
            return Recovery(blocked=True, unexplained=found[0].pod)
        if verdict.permanent:
            return Recovery(status.finished(job, "Failed", verdict.reason, verdict.message, now), ended=True)
        after = restart_counts.restarted(job, verdict, self.pods, now, self.settings)
        return Recovery(after, actions=self._told(after, verdict.message) + self._first_step(after))

    def _stay(self) -> Recovery | None:
        """Begin anew where its pods were on their way out, and it may go on all the same: nobody has disrupted it.

        It has all its time to get its pods running again. Its `activeDeadlineSeconds` go on: they count from the
        admission, because room that is kept for another job is lent to it only until then.
        """
        if not status.is_leaving(self.job.status):
            return None
        after = status.enter(self.job, "Admitted", "Restarting", "it goes on before its pods were gone", self.now)
        stages = {str(each.index): StageStatus(began=self.now) for each in progress.written(self.job)}
        admission = self.job.admission
        since = admission.admitted_at if admission is not None else None
        after = after.model_copy(update={"start_time": since or self.now, "stages": stages})
        return Recovery(after, actions=self._first_step(after))

    def _told(self, after: TorchJobStatus, message: str) -> tuple[Action, ...]:
        before = self.job.status
        if after.disruptions > before.disruptions:
            number = f"disruption {after.disruptions}"
        else:
            number = f"restart {after.restart_count} of {self.job.spec.backoff_limit}"
        when = backoff.said(after, self.settings, self.now)
        found = [Tell("Restarting", f"{number}: {message}{when}", warning=True)]
        for node in restart_counts.newly_excluded(self.job.status, after):
            times = after.node_failures[node]
            found.append(Tell("NodeExcluded", f"node {node} is avoided: pods failed there {times} times", warning=True))
        return tuple(found)

    def _first_step(self, after: TorchJobStatus) -> tuple[Action, ...]:
        """What can be done as soon as it is counted."""
        job = self.job.model_copy(update={"status": after})
        return replace(self, job=job)._go_on().actions

    def _obey(self, request: RestartRequest) -> Recovery:
        """Restart what the owner wants restarted. What is asked of a node may be asked twice, what is counted not."""
        if request.task is None:
            after = restart_counts.obeyed(self.job, request, self.now)
            return Recovery(after, actions=(_asked_for(request, "all pods"), *self._first_step(after)))
        meant = tuple(pod for pod in self.pods if _is_meant(request, pod) and not pod.deleting)
        in_place = tuple(pod for pod in meant if request.how != "Recreate" and self._restarts.able(pod))
        staying = {pod.uid for pod in in_place}
        marks = [pod.uid for pod in meant if pod.uid not in staying]
        asked_for = {"restart_request": request.id, **backoff.at_once(self.job.status, self.now)}
        after = restart_counts.given_up(self.job, marks, self.pods).model_copy(update=asked_for)
        names = ", ".join(pod.name for pod in meant[:10])
        said = _asked_for(request, names or "no pod: there is none of that task and index")
        # First what is asked of nodes, which may be asked again, then the word that it was.
        asking = self._restarts.ask(in_place, request.id)
        return Recovery(after, actions=(said, *self._first_step(after)), before=asking)

    def _go_on(self) -> Recovery:
        """The next step of whatever is under way."""
        whole, single = self._restarts.step(), self._restarts.single()
        if single.failed:
            after = restart_counts.given_up(self.job, [pod.uid for pod, _ in single.failed], self.pods)
            return Recovery(after, actions=_fell_back(self.job, single.failed))
        leaving = frozenset(self.job.status.replacing) - _going(whole.actions)
        away = self.departures.away(pod for pod in self.pods if pod.uid in leaving)
        done = (_done(self.job),) if whole.done else ()
        refused = self._refused() if whole.actions else ()
        actions = (
            *whole.actions,
            *_fell_back(self.job, whole.failed),
            *done,
            *refused,
            *single.actions,
            *away,
            *restarts.seen_to(self.job, self.pods),
            *self._restarts.tidy(),
        )
        times = (whole.again, single.again, self.departures.wait(self.pods))
        return Recovery(actions=actions, blocked=whole.blocked, again=least(times))


def is_about_requests(hindrance: Hindrance | None) -> bool:
    """Whether what cannot be made is a request to recreate containers: then pods are replaced instead."""
    return hindrance is not None and hindrance.reason.startswith(RECREATE_REQUESTS.kind)


def least(times: Iterable[float | None]) -> float | None:
    """The first of some moments."""
    return min((each for each in times if each is not None), default=None)


def _going(actions: Iterable[Action]) -> set[str]:
    """The uids of pods that are deleted already, which are not deleted twice."""
    return {pod.uid for action in actions if isinstance(action, DeletePods) for pod in action.pods}


def _is_meant(request: RestartRequest, pod: PodView) -> bool:
    named = request.task is not None and pod.task == request.task.lower()
    return named and request.index in (None, pod.index)


def _asked_for(request: RestartRequest, what: str) -> Tell:
    return Tell("RestartRequested", f"its owner asked for a restart of {what} ({request.id})")


def _done(job: TorchJob) -> Tell:
    return Tell("RestartedInPlace", f"restart {job.status.restart_generation}: the containers of its pods run again")


def _fell_back(job: TorchJob, failed: tuple[tuple[PodView, str], ...]) -> tuple[Tell, ...]:
    if not failed:
        return ()
    pod, why = failed[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    number = f"restart {job.status.restart_generation}"
    message = f"{number}: pod {pod.name}{more} is replaced, its containers were not restarted in place: {why}"
    return (Tell("NotRestartedInPlace", message, warning=True),)
