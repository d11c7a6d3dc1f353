"""What to do about a job: from an observation to actions.

One rule: pure; the plan is empty when nothing is left to do, and every action in it is safe to repeat.
"""

from datetime import datetime

from crds.status import TorchJobStatus
from crds.torchjob import TorchJob
from gang import members as gang
from reconcilers import failures, lifecycle, pods, status, tasks
from reconcilers.deadline import Deadline
from reconcilers.lifecycle import Back, Broken, Ended, Gone, Idle, Run, Vacate
from reconcilers.pod_view import PodView
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    CreatePods,
    CreateService,
    DeleteJob,
    DeletePods,
    DeleteService,
    Hindrance,
    InvalidJob,
    Observation,
    Plan,
    WriteStatus,
)

Pods = tuple[PodView, ...]


def plan(observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    """The next actions for one key, in order."""
    job = observation.job
    if isinstance(job, TorchJob) and not job.finished:
        # 1. What was reached stays reached, even if the owner suspends the job or its room was taken back since.
        if succeeded(job, observation.pods):
            return _finish(job, observation.pods, status.finished(job, "Succeeded", "Succeeded", "all is done", now))
        # 2. The API server refuses the pods as they are.
        if observation.refused:
            failed = status.finished(job, "Failed", "InvalidTemplate", observation.refused, now)
            return _finish(job, observation.pods, failed)
    # 3. Everything else depends on where the job stands.
    return _by_course(observation, settings, now)


def _by_course(observation: Observation, settings: ReconcileSettings, now: datetime) -> Plan:
    deadline = Deadline(settings.admission_timeout if settings.make_pods else 0.0, now)
    match lifecycle.decide(observation, deadline):
        case Gone():
            return Plan(_services(observation.pods) + _away(observation.pods))
        case Broken(invalid):
            return Plan(_broken(invalid, now) + _away(observation.pods))
        case Ended(ended):
            return _after_the_end(ended, observation.pods, now)
        case Vacate(in_the_way):
            return Plan(_away(in_the_way))
        case Idle() as idle:
            return Plan(_idle(idle, now))
        case Back() as back:
            return Plan(_write(back.job, _sent_back(back, settings, now), ()))
        case Run() as run:
            return _run(run, observation.hindrance, settings, deadline)


def _sent_back(back: Back, settings: ReconcileSettings, now: datetime) -> TorchJobStatus:
    if back.why == "QueueDrained":
        return status.drained(back.job, now)
    return status.late(back.job, settings.admission_backoff, settings.admission_tries, now)


def _run(run: Run, hindrance: Hindrance | None, settings: ReconcileSettings, deadline: Deadline) -> Plan:
    """The plan of a job that holds its room."""
    job, now = run.job, deadline.now
    # 0. Something cannot be made now: its owner is told.
    if hindrance is not None:
        return Plan(_write(job, status.hindered(job, hindrance, now), run.pods))
    # 1. The fence: nobody makes pods before the admission is in the cluster.
    if job.admission != run.admission:
        after = status.admitted(job, run.admission, now)
        return Plan(_write(job, after, run.pods) + _create(run, settings))
    # 2. Its time may be over.
    left = _seconds_left(job.status.start_time, job.spec.active_deadline_seconds, now)
    if left is not None and left <= 0:
        message = f"ran longer than activeDeadlineSeconds {job.spec.active_deadline_seconds}"
        return _finish(job, run.pods, status.finished(job, "Failed", "DeadlineExceeded", message, now))
    # 3. A failure ends the job or restarts it.
    failed = failures.fresh(job, run.pods)
    if failed:
        return _failed(run, failed, now)
    # 4. After a restart of the whole job no pod of before may meet one of after.
    outdated = tuple(pod for pod in run.pods if _outdated(job, pod))
    if outdated:
        return Plan(_away(outdated))
    # 5. Missing pods, and what the pods that are there amount to.
    again = min((each for each in (left, deadline.left(job, run.pods)) if each is not None), default=None)
    return Plan(_write(job, _progress(run, now), run.pods) + _create(run, settings), requeue_after=again)


def succeeded(job: TorchJob, found: Pods) -> bool:
    """Whether the pods of the newest admission have done what the job is for."""
    if job.admission is None:
        return False
    current = (pod for pod in found if pod.attempt == job.admission.attempt and not _outdated(job, pod))
    counts = status.count(job, current)
    decisive = tasks.decisive(job.spec)
    return bool(decisive) and all(tasks.counted(job.spec, counts, each).done for each in decisive)


def _outdated(job: TorchJob, pod: PodView) -> bool:
    return job.spec.scope == "Job" and pod.restart != job.status.restart_generation


def _failed(run: Run, failed: Pods, now: datetime) -> Plan:
    job, verdict = run.job, failures.judge(run.job, failed)
    if verdict.permanent:
        return _finish(job, run.pods, status.finished(job, "Failed", verdict.reason, verdict.message, now))
    count = _write(job, status.restarted(job, verdict.message, now), run.pods)
    return Plan(count + _away(run.pods) if job.spec.scope == "Job" else _away(failed) + count)


def _progress(run: Run, now: datetime) -> TorchJobStatus:
    """Running once every task has its minimum; it stays so until a restart or the end."""
    job = run.job
    counts = status.count(job, run.pods)
    settled = job.status.phase == "Running" and not status.is_hindered(job.status)
    if not settled and gang.running(tasks.counted(job.spec, counts, each) for each in counts):
        return status.running(job, now)
    return status.seen(job)


def _create(run: Run, settings: ReconcileSettings) -> tuple[Action, ...]:
    """The pods that are missing and may start, each rank 0 with its service before it."""
    if not settings.make_pods:
        return ()
    job = run.job
    counts = status.count(job, run.pods)
    members = tasks.members(job, run.admission.attempt)
    blueprint = pods.Blueprint(job=job, admission=run.admission, members=members, settings=settings)
    there = {pod.name for pod in run.pods}
    open_tasks = {each for each in job.spec.tasks if tasks.unlocked(job.spec, counts, each)}
    missing = [each for name, each in members.items() if name not in there and each.task_type in open_tasks]
    leads = [each for each in missing if each.name == each.lead and blueprint.named(each.lead)]
    services = tuple(CreateService(pods.service(blueprint, each)) for each in leads)
    return (*services, CreatePods(pods.Pods(blueprint, tuple(missing)))) if missing else ()


def _finish(job: TorchJob, found: Pods, after: TorchJobStatus) -> Plan:
    """The services first, since nothing shows later that they are there; then the word, then the pods that prove it."""
    leaving = _leftovers(job, found)
    staying = tuple(pod for pod in found if pod not in leaving)
    services = _services(found) if job.spec.clean_pod_policy != "None" else ()
    return Plan(services + _write(job, after, staying) + _away(leaving))


def _after_the_end(job: TorchJob, found: Pods, now: datetime) -> Plan:
    """Clean up; and when its time has come, the job goes too."""
    left = _seconds_left(job.status.completion_time, job.spec.ttl_seconds_after_finished, now)
    if left is not None and left <= 0:
        return Plan((DeleteJob(),))
    return Plan(_away(_leftovers(job, found)), requeue_after=left)


def _seconds_left(since: datetime | None, seconds: int | None, now: datetime) -> float | None:
    """What is left of a span of time; None if there is none."""
    if since is None or seconds is None:
        return None
    return seconds - (now - since).total_seconds()


def _leftovers(job: TorchJob, found: Pods) -> Pods:
    """The pods that the job's end takes with it."""
    match job.spec.clean_pod_policy:
        case "All":
            return found
        case "Running":
            return tuple(pod for pod in found if not pod.finished)
    return ()


def _idle(idle: Idle, now: datetime) -> tuple[Action, ...]:
    job = idle.job
    if job.status.phase == idle.phase and job.admission is None:
        return _write(job, status.seen(job), ())
    return _write(job, status.idle(job, idle.phase, idle.reason, idle.message, now), ())


def _broken(job: InvalidJob, now: datetime) -> tuple[Action, ...]:
    message = "; ".join(map(str, job.problems))
    after = status.entered(job.status, job.generation, "Failed", "InvalidSpec", message, now)
    after = after.model_copy(update={"completion_time": now})
    change = dict.fromkeys(job.unreadable) | status.change(job.status, after)
    return (WriteStatus({"status": change}, job.resource_version),)


def _write(job: TorchJob, after: TorchJobStatus, found: Pods) -> tuple[Action, ...]:
    counted = after.model_copy(update={"task_statuses": status.count(job, found)})
    changed = status.change(job.status, counted)
    return (WriteStatus({"status": changed}, job.metadata.resource_version),) if changed else ()


def _away(found: Pods) -> tuple[Action, ...]:
    staying = tuple(pod for pod in found if not pod.deleting)
    return (DeletePods(staying),) if staying else ()


def _services(found: Pods) -> tuple[Action, ...]:
    return tuple(DeleteService(pod.service) for pod in found if pod.service and not pod.deleting)
