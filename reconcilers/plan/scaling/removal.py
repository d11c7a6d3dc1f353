"""The writes of a removal: the workers that go, and the smaller grant once none of them exists.

One rule: pure. A pod is named as a victim before it is deleted, and the job is charged for it until it no longer
exists.
"""

from dataclasses import replace

from crds.torchjob import grant
from crds.torchjob.status import Resized, Scaling, Target
from reconcilers.plan import restart_counts
from reconcilers.plan.scaling import resize_events
from reconcilers.plan.scaling.resize import Resize, ScalingStep
from reconcilers.pods import grants
from reconcilers.values import EmitEvent


def finish(job: Resize) -> ScalingStep | None:
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
        "idle": max(0, job.run.admission.idle - (job.granted - left)),
    }
    admission, rest = job.run.admission.model_copy(update=change), _after_removal(job, scaling, left)
    target, resized = _target_of(job, left), Resized(at=job.now, seconds=_seconds_to_grow(job, scaling))
    if scaling.to >= job.granted:
        return job.write(rest, admission=admission, target=target, resized=resized)
    events: tuple[EmitEvent, ...] = (resize_events.ended(scaling, left, job.target, job.now, job.granted),)
    if rest is None and job.target is None and job.is_restarting:  # it is said when the others run without them
        rest, events = job.change(left, from_workers=job.granted, since=scaling.since), ()
    step = job.write(rest, events, admission, target=target, resized=resized)
    return replace(step, after=restart_counts.count_removal(job.run.job, step.after))


def _after_removal(job: Resize, scaling: Scaling, left: int) -> Scaling | None:
    """Return the change that goes on after a removal: other workers have yet to join, or another number is wanted."""
    if job.is_joining and scaling.from_workers < left and (job.missing or job.joining):
        return job.change(left, from_workers=scaling.from_workers, since=scaling.since, deadline=scaling.deadline)
    to = job.to(left)
    if to == left or job.has_ended:
        return None
    return job.change(left, from_workers=left, since=scaling.since if to <= scaling.to else job.now)


def _target_of(job: Resize, left: int) -> Target | None:
    """Return the target after a removal. It grants no worker again that was given up, and none that the owner wants by
    himself."""
    if job.target is None or left <= job.wish:
        return None
    return job.target.model_copy(update={"workers": min(job.target.workers, left)})


def _seconds_to_grow(job: Resize, scaling: Scaling) -> int:
    """Return how long the last growth took, which counts after a removal, too. One that was given up took all of its
    time."""
    if scaling.tries and scaling.from_workers < job.granted <= scaling.to:
        return round(job.join_time.total_seconds())
    before = job.run.job.status.resized
    return before.seconds if before is not None else 0


def begin(job: Resize) -> ScalingStep | None:
    """Name the workers that the job loses, because fewer are wanted or reserved. Named victims stay victims."""
    limit = job.reserved if job.has_ended else min(job.wanted, job.reserved)
    names = _leaving(job, len(job.staying) - limit)
    if not names or (job.is_restarting and not frozenset(names) <= frozenset(job.joining)):
        return None
    scaling, since, deadline = job.scaling, job.now, None
    if scaling is not None:
        goes_on = scaling.to == job.to(job.granted) or scaling.to < job.granted
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
