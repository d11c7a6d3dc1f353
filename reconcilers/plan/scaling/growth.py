"""The writes of a growth: the grant of added workers, and its end once they have joined or their time is over.

One rule: pure. A growth is granted by the store, then written, and only then are its pods made.
"""

from datetime import datetime, timedelta
from typing import Any

from crds.torchjob import grant
from crds.torchjob.status import Admission, Resized, Scaling
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import status
from reconcilers.plan.in_place import drivers, graces
from reconcilers.plan.scale_requests.current import UnderWay
from reconcilers.plan.scaling import resize_events
from reconcilers.plan.scaling.resize import Resize, ScalingStep
from reconcilers.plan.worlds import checkpoints
from reconcilers.pods import grants


def rest_of_admission(
    job: TorchJob, admission: Admission, now: datetime, asked: UnderWay | None = None
) -> Scaling | None:
    """Return the request for the workers that a new admission does not have; None if it has all of them."""
    workers, wish = admission.workers, job.spec.worker_count
    if workers is None or workers >= wish:
        return None
    request = asked.label if asked is not None and asked.to == wish else ""
    return Scaling(from_workers=workers, to=wish, since=now, request=request)


def take_up(job: Resize) -> ScalingStep | None:
    """Write what the store has granted beyond the admission, as far as it is still wanted.

    A grant of no further worker is the payment for idle ones.
    """
    held, admission = job.held, job.run.admission
    if held is None or held.grown <= job.grown:
        return None
    if held.size <= job.granted:
        paid = {"grown": held.grown, "idle": min(admission.idle, held.idle), "declined": 0}
        return job.write(job.scaling, admission=admission.model_copy(update=paid))
    to = max(_acceptable(job, held.size), job.granted)
    idle = max(0, held.idle - (held.size - to))
    if to == job.granted:
        declined = {"grown": held.grown, "declined": held.grown, "idle": idle}
        return job.write(_after_declining(job), admission=admission.model_copy(update=declined))
    change = {
        "workers": to,
        "indexes": grant.format_indexes(grants.add_indexes(admission, job.granted, to)),
        "charge": dict(
            held.charge if to == held.size else grants.grown_charge(job.run.wanted, admission, to, held.charge)
        ),
        "grown": held.grown,
        "declined": held.grown if to < held.size else 0,
        "idle": idle,
    }
    since = job.scaling.since if job.scaling is not None else job.now
    scaling = job.change(to, from_workers=job.base, since=since, deadline=job.now + job.join_time, not_before=None)
    return job.write(scaling, admission=admission.model_copy(update=change))


def _after_declining(job: Resize) -> Scaling | None:
    """Return the change that goes on after a growth was declined.

    It asks for no more than is wanted, or the queue would grant the same growth again before the next write.
    """
    scaling = job.scaling
    if scaling is None or job.victims:
        return scaling
    if job.has_ended or (job.to(job.granted) <= job.granted and not job.is_joining):
        return None
    return job.change(from_workers=job.base, since=scaling.since, deadline=scaling.deadline)


def _acceptable(job: Resize, size: int) -> int:
    """Return how many workers of a larger reservation are still wanted."""
    to = min(size, job.wanted)
    is_part = to < job.wish and job.is_all_or_none
    return job.granted if job.has_ended or job.victims or is_part else to


def follow_join(job: Resize) -> ScalingStep | None:
    """End a growth whose workers all run, or give up those that did not join in time."""
    scaling, seconds = job.scaling, job.seconds_to_join
    if scaling is None or not job.is_joining or job.victims:
        return None
    if job.joining and not job.missing and not job.has_ended:
        return _join(job, scaling)
    if not job.missing and not job.joining:
        waits, tries = job.wish > job.granted and not job.has_ended, scaling.tries if scaling.not_before else 0
        rest = job.change(from_workers=job.granted, since=scaling.since, tries=tries) if waits else None
        target = job.target if job.run.admission.idle else None
        ended = resize_events.ended(scaling, job.granted, target, job.now, scaling.from_workers)
        return job.write(rest, (ended,), resized=Resized(at=job.now, seconds=job.seconds_since_grant))
    if job.has_joined:
        return None
    if job.has_ended:
        victims = tuple(job.joining) or _late_workers(job, scaling)
        return job.write(job.change(from_workers=job.base, since=scaling.since, victims=victims))
    return _give_up(job, scaling) if seconds is not None and seconds <= 0 else None


def _join(job: Resize, scaling: Scaling) -> ScalingStep | None:
    """Begin the world with the workers that wait for their rank, once the others have saved. The growth has ended when
    it runs."""
    in_place = drivers.can_restart_any(job.run.job, job.run.pods, job.settings)
    if in_place and graces.must_save(job.run.wanted, job.run.pods):
        saving = checkpoints.begin(job.run.wanted, f"world/{job.run.job.status.restart_generation + 1}", job.now)
        if saving is not None:
            return job.write(scaling, saving=saving)
        if job.save.remaining is not None:
            return None
    change = job.change(from_workers=job.base, since=scaling.since, deadline=scaling.deadline)
    return job.write(change, join=True, saving=None)


def _give_up(job: Resize, scaling: Scaling) -> ScalingStep | None:
    """Name the added workers that did not join as victims. The rest of the request waits again after a pause."""
    victims, tries = _late_workers(job, scaling), scaling.tries + 1
    if not victims:  # they wait for a pod that is never removed, or that is being replaced
        return None
    pause = timedelta(seconds=status.pause(job.run.job, tries, job.settings.admission_backoff))
    change: dict[str, Any] = {"since": scaling.since, "victims": victims, "tries": tries, "not_before": job.now + pause}
    change["deadline"] = scaling.deadline if job.joining else None  # the others at their gates join later
    again = job.wish > job.granted - len(victims)
    event = resize_events.not_joined(victims, job.join_time, again=again)
    return job.write(job.change(from_workers=job.base, **change), (event,))


def _late_workers(job: Resize, scaling: Scaling) -> tuple[str, ...]:
    """Return the workers to give up; all those that a request has added, if it adds all or none."""
    ours = job.asked.added if job.asked is not None else ()
    added = job.granted - scaling.from_workers
    late = [name for name in job.missing if name in job.joining] if job.joining else job.missing
    return job.workers.choose_late(late, added, job.run.wanted.spec.worker_range, ours if job.is_all_or_none else None)
