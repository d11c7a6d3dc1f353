"""The recovery of an active job whose pods failed, are lost, or have to be restarted.

One rule: pure, a ladder. A failure is counted before anything is done about it, and a counted failure is handled before
anything else is created.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from crds.api_resources import RECREATE_REQUESTS
from crds.torchjob import restart_requests
from crds.torchjob.restart_requests import RestartRequest
from crds.torchjob.status import Hang, StageStatus, TorchJobStatus
from crds.torchjob.tasks import RENDEZVOUS
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, departures, failures, grown_memory, progress, rendezvous, restart_counts, status
from reconcilers.plan.departures import LeavingPod
from reconcilers.plan.elastic import checkpoints
from reconcilers.plan.failures import JobVerdict, PodFault
from reconcilers.plan.health import hangs
from reconcilers.plan.in_place import interruptions, kruise, restarts
from reconcilers.plan.in_place.drivers import find_drivers
from reconcilers.plan.in_place.requested import RequestedRestart
from reconcilers.plan.in_place.restarts import Restarts
from reconcilers.plan.lifecycle import Active
from reconcilers.plan.moment import Moment
from reconcilers.pods import static_world
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, Blocker, DeletePods, EmitEvent, NoMemory, Observation, earliest
from reconcilers.views.pod_view import PodView

SHORTEST_PAUSE = 1.0
"""The shortest pause, in seconds, before a request to recreate containers is made again."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The first thing to do about failures and restarts."""

    after: TorchJobStatus | None = None
    """The status to write before the actions. If it is set, nothing else is done in this reconcile."""
    ended: bool = False
    """Whether this ends the job."""
    before: tuple[Action, ...] = ()
    """Actions that precede the write of the status, because they are safe to repeat."""
    actions: tuple[Action, ...] = ()
    blocked: bool = False
    """Whether nothing else may be done for now."""
    held: bool = False
    """Whether new pods wait at their start gates, because runs from before a restart go on."""
    requeue_after: float | None = None
    unexplained: PodView | None = None
    """The pod that caused the failure, if its log may explain it further; the log is read before anything else."""


@dataclass(frozen=True)
class RecoveryContext:
    """An active job with its pods and the state of their nodes."""

    run: Active
    at: Moment
    job: TorchJob
    """The job with the status that is being decided on."""

    @property
    def pods(self) -> tuple[PodView, ...]:
        """The existing pods of the granted job."""
        return self.run.pods

    def recover(self) -> Recovery:
        """Return the first thing that has to be done; an empty Recovery if there is nothing."""
        resumed = self._resume()
        if resumed is not None:
            return resumed
        leaving = departures.unhandled(self.job, self._leaving)
        if leaving:
            after = self._keep_graces(departures.depart(self.job, leaving, self.pods, self.at.now))
            return Recovery(after, actions=(departures.event(leaving), *self._first_step(after)))
        faults = self._faults()
        if faults:
            return self._set_back(faults)
        request = restart_requests.pending_request(self.job)
        if request is not None:
            return self._restart_on_request(request)
        hang = self.job.hang
        if hang is not None and self.pods and (handled := self._handle_hang(hang)) is not None:
            return handled
        if rendezvous.has_no_restart_left(self.job) and not rendezvous.has_succeeded(self.job, self.pods):
            return self._renew_restarts()
        stuck = self.at.deletion.stuck_pods(self.pods)
        if stuck and not status.is_blocked(self.job.status):
            message = self.at.deletion.describe_stuck(stuck)
            event = EmitEvent(status.PODS_STUCK, message, warning=True)
            return Recovery(status.block_on_stuck_pods(self.job, message, self.at.now), actions=(event,))
        if (
            len(self.pods) == len(self.run.members)
            and restart_counts.remaining_marks(self.job, self.pods) != self.job.status.replacing
        ):
            # All pods exist again, so earlier replacements no longer explain a missing pod.
            return Recovery(restart_counts.replace_pods(self.job, (), self.pods))
        return self._continue()

    @cached_property
    def _leaving(self) -> tuple[LeavingPod, ...]:
        """The pods that leave their nodes before they lose them; the failures that follow from such a departure are not
        judged.
        """
        behind = progress.completed_tasks(self.job)
        needed = [pod for pod in self.pods if pod.task not in behind]
        return departures.find(self.job, needed, self.at.observation.departures)

    @cached_property
    def _restarts(self) -> Restarts:
        outdated = any(pod.restart != self.job.status.restart_generation for pod in self.pods)
        # Pods whose stage begins anew after the last restart are not restarted with the others.
        begun = {name.lower() for stage in progress.begun_stages(self.job) for name in stage.tasks}
        return Restarts(
            job=self.job,
            pods=self.pods,
            leads=self._leads() if outdated else frozenset(),
            deletion=self.at.deletion,
            drivers=find_drivers(
                self.job,
                self.pods,
                self.at.observation.recreations,
                self.at.settings,
                self.at.now.timestamp(),
                refused=is_about_requests(self.at.observation.met(Blocker)),
            ),
            leaving=frozenset(entry.pod.uid for entry in self._leaving)
            | frozenset(pod.uid for pod in self.pods if pod.task not in begun),
            memory=grown_memory.charged(self.job) if outdated else {},
            places=static_world.places(self.job, self.job.admission, self.run.members) if outdated else {},
            pause=backoff.job_pause(self.job.status, self.at.settings, self.at.now),
        )

    def _leads(self) -> frozenset[str]:
        """Return the names of the pods that count as restarted before the pods that connect to them. Pods that meet at
        the rendezvous store need no order.
        """
        leads = frozenset(member.lead for member in self.run.members.values())
        return leads - {self.job.pod_name(RENDEZVOUS, 0)} if self.job.spec.rendezvous else leads

    def _refusal_events(self) -> tuple[Action, ...]:
        blocker = self.at.observation.met(Blocker)
        if blocker is None or not is_about_requests(blocker):
            return ()
        number = f"restart {self.job.status.restart_generation}"
        message = f"{number}: pods are replaced, their containers cannot be restarted in place: {blocker.message}"
        return (EmitEvent("NotRestartedInPlace", message, warning=True),)

    def _faults(self) -> list[PodFault]:
        dead, behind = self.at.deletion.dead, progress.completed_tasks(self.job)
        needed = (pod for pod in self.pods if pod.task not in behind and not interruptions.is_uncounted(pod))
        faults = failures.find_faults(self.job, needed, dead, self._restarts.pods_in_restart() | self._deferred_pods())
        return [*faults, *_missing_pod_faults(self.job, self.run, self.at.observation)]

    def _deferred_pods(self) -> frozenset[str]:
        """Return the uids of pods that their nodes restart while the job backs off.

        The restarts of these pods are counted together after the back-off. A node may restart containers very often,
        and each count would be a write.
        """
        if backoff.remaining_pause(self.job.status, self.at.settings, self.at.now) <= 0:
            return frozenset()
        return frozenset(pod.uid for pod in self.pods if pod.self_healing)

    def _set_back(self, faults: list[PodFault]) -> Recovery:
        job, now = self.job, self.at.now
        verdict = failures.judge(job, faults, self.at.settings.most_disruptions, now.timestamp())
        if verdict.wait and any(pod.started for pod in self.pods):
            return Recovery(blocked=True, requeue_after=verdict.wait)
        if faults[0].pod.unexplained:
            return Recovery(blocked=True, unexplained=faults[0].pod)
        if verdict.permanent:
            return Recovery(_fail(job, verdict, faults[0].pod, now), ended=True)
        after = restart_counts.count_failure(job, verdict, self.pods, now, self.at.settings)
        events = self._failure_events(after, verdict.message) + grown_memory.growth_events(job, after)
        raises, after = grown_memory.charge_growth(job, after, self.at.observation.met(NoMemory))
        if self.at.observation.met(NoMemory) is not None and any(fault.would_come_back for fault in faults):
            after = after.model_copy(update={"recreate_generation": after.restart_generation})
        return Recovery(after, before=raises, actions=events + self._first_step(after))

    def _handle_hang(self, hang: Hang) -> Recovery | None:
        """Report a hang, or restart the job or a pod because of it; None if the hang is reported already."""
        job, event = self.job, hangs.event(hang)
        if job.spec.health.on_hang == "Report":
            after = hangs.report(job, hang)
            return Recovery(after, before=(event,)) if after is not None else None
        verdict = hangs.judge(job, hang, self.pods, self.at.now)
        if verdict.permanent:
            ended = status.finish(job, "Failed", verdict.reason, verdict.message, self.at.now)
            return Recovery(ended, ended=True, before=(event,))
        after = hangs.restart(job, verdict, self.pods, self.at.now, self.at.settings)
        actions = self._failure_events(after, verdict.message) + self._first_step(after)
        return Recovery(after, before=(event,), actions=actions)

    def _resume(self) -> Recovery | None:
        """Let a job start again whose pods were being deleted although the job may continue; such a start is not a
        disruption.

        The job has its full time to get its pods running again. The job's `activeDeadlineSeconds` are still counted
        from the admission, because resources that are reserved for another job are lent to it only until then.
        """
        if not status.is_leaving(self.job.status):
            return None
        after = status.enter(
            self.job, "Admitted", "Restarting", "the job goes on although its pods were being deleted", self.at.now
        )
        stages = {str(stage.index): StageStatus(began=self.at.now) for stage in progress.begun_stages(self.job)}
        admission = self.job.admission
        since = admission.admitted_at if admission is not None else None
        after = after.model_copy(update={"start_time": since or self.at.now, "stages": stages})
        return Recovery(after, actions=self._first_step(after))

    def _failure_events(self, after: TorchJobStatus, message: str) -> tuple[Action, ...]:
        """Return the Events about a counted failure."""
        more = backoff.describe(after, self.at.settings, self.at.now)
        return (_restart_event(self.job, after, message + more), *_exclusion_events(self.job, after))

    def _first_step(self, after: TorchJobStatus) -> tuple[Action, ...]:
        """Return the actions that can follow as soon as the failure is counted."""
        job = self.job.model_copy(update={"status": after})
        return replace(self, job=job)._continue().actions

    def _renew_restarts(self) -> Recovery:
        after = self._keep_graces(restart_counts.restart_job(self.job, rendezvous.why_restarted(self.job), self.at.now))
        event = EmitEvent("Restarting", rendezvous.why_restarted(self.job))
        return Recovery(after, actions=(event, *self._first_step(after)))

    def _restart_on_request(self, request: RestartRequest) -> Recovery:
        """Restart the pods that the owner wants restarted, once the pods that have to save have saved."""
        if request.task and request.task.lower() in rendezvous.find_closing_tasks(self.job, self.pods):
            request = request.model_copy(update={"task": None, "index": None})  # its peers are gone
        asked = RequestedRestart(job=self.job, request=request, restarts=self._restarts, now=self.at.now)
        if (saving := asked.asks_to_save) is not None:
            return Recovery(saving)
        save = asked.save(self.at.observation.reported_save)
        if save.remaining is not None:
            rest = self._continue()
            times = (rest.requeue_after, save.remaining)
            return replace(rest, actions=(*rest.actions, *save.actions), requeue_after=earliest(times))
        after = asked.after
        refused = self._refusal_events() if asked.replaced and request.how != "Recreate" else ()
        return Recovery(after, actions=(*asked.events, *refused, *self._first_step(after)), before=asked.requests)

    def _keep_graces(self, after: TorchJobStatus) -> TorchJobStatus:
        return checkpoints.keep_graces(self.job, after, (pod for pod in self.pods if self._restarts.can_restart(pod)))

    def _continue(self) -> Recovery:
        """Return the next step of the restarts that are under way."""
        job_step, pod_step = self._restarts.job_step(), self._restarts.pod_step()
        if job_step.blocked and self.job.status.phase == "Running" and _uids_to_delete(job_step.actions):
            # A new world restarts the pods of a running job, which continues to run unless pods are replaced.
            message = "pods are replaced, because their containers could not be restarted in place"
            return Recovery(status.enter(self.job, "Admitted", "Restarting", message, self.at.now))
        if pod_step.failed:
            after = restart_counts.replace_pods(self.job, [pod.uid for pod, _ in pod_step.failed], self.pods)
            return Recovery(after, actions=_fallback_events(pod_step.failed))
        to_replace = frozenset(self.job.status.replacing) - _uids_to_delete(job_step.actions)
        deletions = self.at.deletion.delete(pod for pod in self.pods if pod.uid in to_replace)
        # A resize of a running job has an event of its own.
        done = (_success_event(self.job),) if job_step.done and self.job.status.phase != "Running" else ()
        refused = self._refusal_events() if job_step.actions else ()
        actions = (
            *job_step.actions,
            *_fallback_events(job_step.failed, f"restart {self.job.status.restart_generation}: "),
            *done,
            *refused,
            *pod_step.actions,
            *deletions,
            *restarts.mark_counted(self.job, self.pods),
            *kruise.delete_orphans(self.at.observation.recreations, self.pods),
        )
        again = earliest((job_step.requeue_after, pod_step.requeue_after, self.at.deletion.next_change(self.pods)))
        return Recovery(actions=actions, blocked=job_step.blocked, held=job_step.held, requeue_after=again)


def _missing_pod_faults(job: TorchJob, run: Active, observation: Observation) -> list[PodFault]:
    """Return faults for pods of a running job that were deleted and have gone.

    Only faults that concern the other pods are judged. Any other missing pod is created again without a report.
    """
    pods, members = observation.pods, run.members
    if job.status.phase != "Running" or len(pods) == len(members):
        return []
    names = {pod.name for pod in pods}
    state = progress.assess(job, pods)
    over = state.passed | state.closed
    expected = {name: pod for name, pod in members.items() if not pod.joins and pod.task_type not in over}
    missing = [member for name, member in expected.items() if name not in names]
    replaced = {mark.partition("/")[0] for mark in job.status.replacing} - {pod.uid for pod in pods}
    if len(missing) <= len(replaced):  # torchq deleted them: they are counted already, or their owner wanted it
        return []
    present = (job.admission.attempt if job.admission is not None else 0, job.status.restart_generation)
    seen = {pod.name: pod for pod in observation.gone if (pod.attempt, pod.restart) == present}
    lost = [
        failures.missing_pod_fault(job, member, seen.get(member.name))
        for member in missing
        if status.is_whole(job, member.task_type, job.status.task_statuses.get(member.task_type))
    ]
    alone = rendezvous.find_closing_tasks(job, pods) if lost else frozenset()
    faults = [replace(fault, irreplaceable=failures.is_irreplaceable(job, fault.pod, alone)) for fault in lost]
    return [fault for fault in faults if fault.irreplaceable or failures.is_whole(job, fault.pod)]


def is_about_requests(blocker: Blocker | None) -> bool:
    """Return whether the blocker is about a request to recreate containers; pods are replaced instead in that case."""
    return blocker is not None and blocker.reason.startswith(RECREATE_REQUESTS.kind)


def next_request(
    job_status: TorchJobStatus, blocker: Blocker, settings: ReconcileSettings, now: datetime
) -> float | None:
    """Return the seconds until a request to recreate containers is made again that the API server failed to create.
    The result is None if the creation has failed for as long as a restart in place may take, or is refused: the pods
    are then replaced.

    Each pause is as long as the failure has lasted, so that pauses double, whichever worker continues.
    """
    if not blocker.passing:
        return None
    is_same = status.admission_reason(job_status) == blocker.reason or not status.is_blocked(job_status)
    since = job_status.blocked_since if is_same else None
    lasted = abs((now - since).total_seconds()) if since is not None else 0.0
    remaining = settings.in_place_timeout - lasted
    return min(max(SHORTEST_PAUSE, lasted), remaining) if remaining > 0 else None


def _restart_event(job: TorchJob, after: TorchJobStatus, message: str) -> EmitEvent:
    number = f"restart {after.restart_count} of {job.spec.backoff_limit}"
    if after.disruptions > job.status.disruptions:
        number = f"disruption {after.disruptions}"
    return EmitEvent("Restarting", f"{number}: {message}", warning=True)


def _exclusion_events(job: TorchJob, after: TorchJobStatus) -> Iterator[EmitEvent]:
    """Yield an Event for each node that is avoided from now on."""
    for node in restart_counts.new_exclusions(job.status, after):
        message = f"node {node} is avoided: pods failed there {after.node_failures[node]} times"
        yield EmitEvent("NodeExcluded", message, warning=True)


def _uids_to_delete(actions: Iterable[Action]) -> set[str]:
    """Return the uids of pods that the actions delete, so that no pod is deleted twice."""
    return {pod.uid for action in actions if isinstance(action, DeletePods) for pod in action.pods}


def _success_event(job: TorchJob) -> EmitEvent:
    return EmitEvent(
        "RestartedInPlace", f"restart {job.status.restart_generation}: the containers of its pods run again"
    )


def _fallback_events(failed: tuple[tuple[PodView, str], ...], restart: str = "") -> tuple[EmitEvent, ...]:
    """Return the Event about pods that are replaced instead; `restart` names a restart of the whole job."""
    if not failed:
        return ()
    pod, why = failed[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    message = f"{restart}pod {pod.name}{more} is replaced, its containers were not restarted in place: {why}"
    return (EmitEvent("NotRestartedInPlace", message, warning=True),)


def _fail(job: TorchJob, verdict: JobVerdict, pod: PodView, now: datetime) -> TorchJobStatus:
    """Return the status of a job that fails because of a pod."""
    after = status.finish(job, "Failed", verdict.reason, verdict.message, now)
    return after.model_copy(update={"exit_code": failures.exit_code(pod)})
