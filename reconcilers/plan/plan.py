"""What to do about a job: from an observation to actions.

One rule: pure; the plan is empty when nothing is left to do, and every action in it is safe to repeat.
"""

import math
from dataclasses import replace
from datetime import UTC, datetime

from crds.torchjob import conditions
from crds.torchjob.status import Admission, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, gangs, lifecycle, over_quota, progress, status
from reconcilers.plan.advance import Advance
from reconcilers.plan.deadline import Deadline
from reconcilers.plan.lifecycle import Back, Broken, Ended, Gone, Idle, Run, Vacate
from reconcilers.plan.pod_deletion import Departures
from reconcilers.plan.recovery import Scene, is_about_requests, least
from reconcilers.pods import measure, task_members
from reconcilers.pods.measure import Excess
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    DeleteJob,
    DeleteService,
    Hindrance,
    InvalidJob,
    Observation,
    OverQuota,
    Plan,
    RaiseCharge,
    Tell,
    WriteStatus,
)
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

Pods = tuple[PodView, ...]
TRY_AGAIN = 60.0
"""Seconds after which pods that a ResourceQuota refuses are tried again while the others of the job run."""


def plan(observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    """The next actions for one key, in order."""
    job = observation.job
    leaving = Departures(now.timestamp(), settings.dead_node_grace, observation.dead_nodes, settings.longest_grace)
    if observation.no_room or (isinstance(job, TorchJob) and status.reason(job.status) == status.EXCEEDS):
        leaving = leaving.unpaid()
    if isinstance(job, TorchJob) and not job.finished:
        # 1. What was reached stays reached, even if the owner suspends the job or its room was taken back since.
        if succeeded(job, observation.pods):
            after = status.finished(job, "Succeeded", "Succeeded", "all is done", now)
            return _finish(job, observation, after, leaving)
        # 2. The API server refuses the pods as they are.
        if observation.refused:
            after = status.finished(job, "Failed", "InvalidTemplate", observation.refused, now)
            return _finish(job, observation, after, leaving)
    # 3. Everything else depends on where the job stands.
    found = _by_course(observation, settings, leaving, now)
    actions = found.actions + leaving.shortened(found.actions)
    return Plan(actions, least((found.requeue_after, leaving.wait(observation.pods))), found.unexplained)


def _stuck(observation: Observation, leaving: Departures, now: datetime) -> tuple[Action, ...]:
    """Finalizers keep pods of a job that is to have none: in its status while that says anything of pods."""
    job, stuck = observation.job, leaving.stuck(observation.pods)
    if not stuck:
        return ()
    message = leaving.what_holds(stuck)
    told = (Tell(status.PODS_STUCK, message, warning=True),)  # the same event is made once
    if not isinstance(job, TorchJob) or job.finished or job.admission is None:
        return told
    if status.is_hindered(job.status):
        return told if status.reason(job.status) in status.SENT_BACK else ()
    return _write(job, status.stuck(job, message, now), observation.pods) + told


def _by_course(observation: Observation, settings: ReconcileSettings, leaving: Departures, now: datetime) -> Plan:
    deadline = _deadline(observation, settings, now)
    groups = gangs.removed(observation.groups)
    match lifecycle.decide(observation, deadline):
        case Gone():
            return _gone(observation, leaving, now)
        case Broken(invalid):
            return _no_job(invalid, observation, leaving, now)
        case Ended(ended):
            return _after_the_end(ended, observation, leaving, now)
        case Vacate(in_the_way, said):
            if said is None:
                away = leaving.away(in_the_way, shorten=True)
                return Plan(away + _stuck(observation, leaving, now), _runs_out(observation, deadline))
            after = status.leaving(said.job, said.reason, said.message, now)
            return Plan(_write(said.job, after, in_the_way) + leaving.away(in_the_way, shorten=True))
        case Idle() as idle:
            return Plan(_idle(idle, now) + groups)
        case Back() as back:
            after = _sent_back(back, settings, now)
            # A ResourceQuota may count its services, too, and says nothing of whose they are.
            services = _last_services(back.job, ()) if back.why == "NamespaceQuota" else ()
            return Plan(services + _write(back.job, after, ()) + groups + _why_back(after))
        case Run() as run:
            return _run(run, observation, settings, leaving, deadline)


def _gone(observation: Observation, leaving: Departures, now: datetime) -> Plan:
    """The pods of a job that its owner has deleted keep their grace, and its queue pays for it; not longer than an
    admin allows who takes the queue's room back."""
    granted = leaving if observation.draining else replace(leaving, longest=math.inf)
    away = granted.away(observation.pods, shorten=True) + _stuck(observation, leaving, now)
    return Plan(_services(observation.pods) + away + gangs.removed(observation.groups))


def _runs_out(observation: Observation, deadline: Deadline) -> float | None:
    """Seconds until the job's time is over; None if it is over, or the job has no deadline."""
    left = deadline.active(observation.job) if isinstance(observation.job, TorchJob) else None
    return left if left is not None and left > 0 else None


def _deadline(observation: Observation, settings: ReconcileSettings, now: datetime) -> Deadline:
    job = observation.job
    pause = backoff.left(job.status, settings, now) if isinstance(job, TorchJob) else 0.0
    again = None if observation.ready_again is None else datetime.fromtimestamp(observation.ready_again, UTC)
    return Deadline(settings.admission_timeout if settings.make_pods else 0.0, now, pause, again)


def _why_back(after: TorchJobStatus) -> tuple[Action, ...]:
    """Nobody has done it to the job: it is told where people look."""
    said = conditions.find(after.conditions, "Queued")
    if said is None or said.reason not in status.SENT_BACK:
        return ()
    if said.reason == status.EXCEEDS:
        return (Tell("ExceedsQuota", said.message, warning=True),)
    if said.reason == status.NAMESPACE_QUOTA:
        return (Tell("NamespaceQuota", said.message, warning=True),)
    return (Tell("NotRunningInTime", said.message, warning=True),)


def _sent_back(back: Back, settings: ReconcileSettings, now: datetime) -> TorchJobStatus:
    if back.why == "ExceedsQuota":
        return status.exceeding(back.job, back.message, now)
    if back.why == "NamespaceQuota":
        waits = back.job.status.queue
        return over_quota.sent_back(back.job, waits.refused_by if waits else None, back.message, now)
    if back.why != "NotRunningInTime":
        return status.returning(back.job, back.why, now)
    return status.late(back.job, settings.admission_backoff, settings.admission_tries, now, back.message)


def _run(
    run: Run, observation: Observation, settings: ReconcileSettings, leaving: Departures, deadline: Deadline
) -> Plan:
    """The plan of a job that holds its room."""
    job, now = run.job, deadline.now
    # 0. Its time may be over, whatever hinders it: room may be lent to it until then.
    left = deadline.active(job) if job.admission == run.admission else None
    if left is not None and left <= 0:
        message = f"ran longer than activeDeadlineSeconds {job.spec.active_deadline_seconds}"
        return _finish(job, observation, status.finished(job, "Failed", "DeadlineExceeded", message, now), leaving)
    if observation.over_quota is not None and job.admission == run.admission:
        return _over_quota(run, observation, observation.over_quota, leaving, now)
    # Something cannot be made now: its owner is told.
    if observation.hindrance is not None and not is_about_requests(observation.hindrance):
        return Plan(_write(job, _hindered(job, observation.hindrance, now), run.pods), left)
    # 1. The fence: nobody makes pods before the admission is in the cluster.
    if job.admission != run.admission:
        admission = _bound(run, settings)
        after = status.admitted(job, admission, now)
        begun = replace(run, job=job.model_copy(update={"status": after}), admission=admission)
        advance = Advance(run=begun, observation=observation, settings=settings, now=now)
        return Plan(_write(job, after, run.pods) + advance.actions())
    # 2. Its pods may ask for more than it is charged: that comes before another pod.
    excess = measure.of(job, run.admission.charge, run.pods)
    if excess is not None:
        return _exceeding(run, excess, observation, leaving, now)
    # 3. What happened to its pods ends the job or sets it back; a restart that is under way goes on.
    recovery = _scene(run, observation, settings, leaving, now).recover()
    if recovery.after is not None and recovery.ended:
        return _finish(job, observation, recovery.after, leaving)
    pauses = backoff.next(job.status if recovery.after is None else recovery.after, settings, now)
    again = least((left, deadline.left(job, run.pods), recovery.again, observation.next_dead, pauses))
    if recovery.after is not None:
        return Plan(recovery.before + _write(job, recovery.after, run.pods) + recovery.actions, again)
    if recovery.blocked:
        return Plan(recovery.actions, again, recovery.unexplained)
    # 4. Missing pods, and what the pods that are there amount to.
    stuck = bool(leaving.stuck(run.pods))
    advance = Advance(run=run, observation=observation, settings=settings, now=now, stuck=stuck)
    # Pods of tasks that are done with take room from those that come after them, which wait until they are gone.
    passed = {each.lower() for each in advance.progress.passed}
    over = tuple(pod for pod in run.pods if pod.task in passed and pod_view.occupies(pod))
    steps = leaving.away(over) if over else advance.actions()
    actions = _write(job, advance.status(), run.pods) + recovery.actions + steps
    return Plan(actions, least((again, advance.groups.again)))


def _exceeding(run: Run, excess: Excess, observation: Observation, leaving: Departures, now: datetime) -> Plan:
    """The job is charged for what its pods ask for, or sent back where there is no room for that."""
    job = run.job
    if excess.uncountable:
        message = f"{excess}; that is more than a job can be charged for"
        return _finish(job, observation, status.finished(job, "Failed", "InvalidTemplate", message, now), leaving)
    if observation.no_room is None:
        written = _write(job, status.charged(job, excess.charge, excess.measured), run.pods)
        return Plan((RaiseCharge(run.admission.attempt, excess.charge), *written), requeue_after=0.0)
    message = excess.refused(run.admission.queue, observation.no_room)
    after = status.leaving(job, status.EXCEEDS, message, now).model_copy(update={"measured": excess.measured})
    return Plan(_write(job, after, run.pods) + leaving.away(run.pods))


def _over_quota(run: Run, observation: Observation, refused: OverQuota, leaving: Departures, now: datetime) -> Plan:
    """A job that cannot have all the pods it needs gives its room back; one that may run with those that are there
    keeps it, and the others are tried again."""
    job = run.job
    if over_quota.may_run(job, run.pods):
        hindrance = Hindrance(status.PODS_FORBIDDEN, refused.message)
        return Plan(_write(job, _hindered(job, hindrance, now), run.pods), TRY_AGAIN)
    queue = over_quota.noted(job, refused)
    if run.pods:
        after = status.leaving(job, status.NAMESPACE_QUOTA, refused.message, now).model_copy(update={"queue": queue})
        return Plan(_write(job, after, run.pods) + leaving.away(run.pods))
    after = over_quota.sent_back(job, queue.refused_by, refused.message, now)
    groups = gangs.removed(observation.groups)
    return Plan(_last_services(job, ()) + _write(job, after, ()) + groups + _why_back(after))


def _hindered(job: TorchJob, hindrance: Hindrance, now: datetime) -> TorchJobStatus:
    """Of groups that are not let in and pods beside them that may not be made the groups are told of: each look meets
    both, and would tell of one and the other in turn."""
    about_pods = hindrance.reason in (status.PODS_FORBIDDEN, status.NAME_TAKEN)
    return (
        status.seen(job) if about_pods and status.is_about_groups(job.status) else status.hindered(job, hindrance, now)
    )


def _bound(run: Run, settings: ReconcileSettings) -> Admission:
    """A new admission says who binds its pods, for as long as it lasts."""
    scheduler = run.job.spec.scheduling_policy.gang_scheduler or settings.gang_scheduler
    return run.admission.model_copy(update={"gang_scheduler": scheduler})


def _scene(
    run: Run, observation: Observation, settings: ReconcileSettings, leaving: Departures, now: datetime
) -> Scene:
    return Scene(
        job=run.job,
        pods=run.pods,
        members=run.members,
        observation=observation,
        settings=settings,
        departures=leaving,
        now=now,
    )


def succeeded(job: TorchJob, pods: Pods) -> bool:
    """Whether the pods of the newest admission have done what the job is for."""
    if job.admission is None or not (job.status.stages or any(pod.phase == "Succeeded" for pod in pods)):
        return False
    found = progress.of(job, (pod for pod in pods if pod.attempt == job.admission.attempt))
    decisive = task_members.decisive(job.spec)
    return bool(decisive) and all(map(found.done, decisive))


def _finish(job: TorchJob, observation: Observation, after: TorchJobStatus, leaving: Departures) -> Plan:
    """The services first, since nothing shows later that they are there; then the word, then the pods that prove it."""
    found = observation.pods
    going = _leftovers(job.spec.clean_pod_policy, after, found)
    gone = {pod.uid for pod in going}
    staying = tuple(pod for pod in found if pod.uid not in gone)
    services = _last_services(job, found) if job.spec.clean_pod_policy != "None" else ()
    groups = gangs.removed(observation.groups)
    return Plan(services + _write(job, after, staying) + leaving.away(going, shorten=True) + groups + _last_word(after))


def _last_word(after: TorchJobStatus) -> tuple[Action, ...]:
    """Why a job failed, where people look for it: its conditions go with it, an event stays for a while."""
    said = conditions.find(after.conditions, "Failed")
    return (Tell(said.reason, said.message, warning=True),) if said is not None and after.phase == "Failed" else ()


def _after_the_end(job: TorchJob, observation: Observation, leaving: Departures, now: datetime) -> Plan:
    """Clean up; and when its time has come, the job goes too."""
    left = _seconds_left(job.status.completion_time, job.spec.ttl_seconds_after_finished, now)
    if left is not None and left <= 0:
        return Plan((DeleteJob(),))
    # Of a drained queue, and beyond its activeDeadlineSeconds, no pod keeps room, also where the job's owner wants its
    # pods kept.
    policy = job.spec.clean_pod_policy
    active = Deadline(0.0, now).active(job)
    back = observation.draining or (active is not None and active <= 0)
    leftovers = _leftovers("Running" if back and policy == "None" else policy, job.status, observation.pods)
    away = leaving.away(leftovers, shorten=True) + _stuck(observation, leaving, now)
    stays = any(pod_view.occupies(pod) for pod in observation.pods)
    again = least((left, active if stays and not back else None))
    return Plan(_seen(job) + away + gangs.removed(observation.groups), requeue_after=again)


def _seen(job: TorchJob) -> tuple[Action, ...]:
    """Its newest spec is acknowledged; what its pods were is not counted again."""
    changed = status.change(job.status, status.seen(job))
    return (WriteStatus({"status": changed}, job.metadata.resource_version),) if changed else ()


def _seconds_left(since: datetime | None, seconds: int | None, now: datetime) -> float | None:
    """What is left of a span of time; None if there is none."""
    if since is None or seconds is None:
        return None
    return seconds - (now - since).total_seconds()


def _leftovers(policy: str, after: TorchJobStatus, found: Pods) -> Pods:
    """The pods that the job's end takes with it. A job that failed keeps no pod that holds anything."""
    if policy == "All":
        return found
    if policy == "Running" or after.phase == "Failed":
        return tuple(pod for pod in found if pod_view.occupies(pod))
    return ()


def _idle(idle: Idle, now: datetime) -> tuple[Action, ...]:
    job = idle.job
    if job.status.phase == idle.phase and job.admission is None:
        return _write(job, status.seen(job), ())
    return _write(job, status.idle(job, idle.phase, idle.reason, idle.message, now), ())


def _no_job(job: InvalidJob, observation: Observation, leaving: Departures, now: datetime) -> Plan:
    """It says so, keeps nothing, and goes when its time has come as any other that failed."""
    ended = job.status.completion_time if job.status.finished else None
    left = _seconds_left(ended, job.time_to_live, now)
    if left is not None and left <= 0:
        return Plan((DeleteJob(),))
    said = () if job.status.finished else _broken(job, now)
    away = leaving.away(observation.pods, shorten=True) + _stuck(observation, leaving, now)
    return Plan(said + away + gangs.removed(observation.groups), left)


def _broken(job: InvalidJob, now: datetime) -> tuple[Action, ...]:
    message = "; ".join(map(str, job.problems))
    after = status.entered(job.status, job.generation, "Failed", "InvalidSpec", message, now)
    after = after.model_copy(update={"completion_time": now})
    change = dict.fromkeys(job.unreadable) | status.change(job.status, after)
    return (WriteStatus({"status": change}, job.resource_version),)


def _write(job: TorchJob, after: TorchJobStatus, found: Pods) -> tuple[Action, ...]:
    # What was there before a restart is not there any more.
    current = (pod for pod in found if pod.restart == after.restart_generation)
    counts = status.count(job, current) | status.passed(job, after.stages)
    counted = after.model_copy(update={"task_statuses": counts})
    changed = status.change(job.status, counted)
    return (WriteStatus({"status": changed}, job.metadata.resource_version),) if changed else ()


def _services(found: Pods) -> tuple[Action, ...]:
    return tuple(DeleteService(pod.service) for pod in found if pod.service and not pod.deleting)


def _last_services(job: TorchJob, found: Pods) -> tuple[Action, ...]:
    """All that there may be: whether a rank 0 that is not there had one, nothing shows."""
    there = {pod.name for pod in found}
    unseen = (each for each in task_members.leads(job) if each not in there)
    return tuple(map(DeleteService, (*(pod.service for pod in found if pod.service), *unseen)))
