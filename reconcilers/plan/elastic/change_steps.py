"""The next write for a change of the number of workers of an admitted job: one write of its status at a time.

One rule: pure. Each step follows from the status, the reservation and the pods, so that any other worker can go on.

    found                                                   written
    the reservation has grown, and that is still wanted     the grant, and until when the added workers have to join
    the reservation has grown, but that is not wanted       that the growth was declined
    no named victim exists any more                         the smaller grant
    more workers than are wanted, or than are reserved      victims
    all added workers wait for their rank                   the world with them; the others save first, if they must
    all added workers run                                   the end of the change; the rest goes on waiting
    the time to join is over                                victims: the workers that did not join
    workers that left their nodes found no other in time    victims: these workers
    a removal of running workers, where the job can save    the change; the victims once the workers have saved
    another number of workers is wanted than granted        the change, as the request that the queue waits with
    the target of the coordinator is over                   no target; usually with one of the others

The coordinator may want another number of workers than the owner (`status.target`). Workers that the coordinator wants
beyond the owner's number are granted without a request, and paid for when the owner wants them, too.

A change does not restart the job: it keeps its start time, its counts, its attempt and its port. In the mode
InPlaceRestart it restarts the containers of all pods (`reconcilers.plan.in_place.restarts`). Once a worker has
succeeded nothing grows any more.

The store grants a growth, then the grant is written, and only then its pods are made. A pod is named as a victim before
it is deleted, and the job is charged for it until it no longer exists. An elastic job gives up workers that left their
nodes (`reconcilers.plan.departures`), down to its least number: the number that its owner wants, if the policy gives
none. Giving workers up frees their room; the missing workers wait in the queue of the job again. Any other job
continues to wait for its pods.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from crds import timestamps
from crds.torchjob import grant
from crds.torchjob.status import GIVE_BACK, IDLE, Admission, Resized, Scaling, Target
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import restart_counts, status
from reconcilers.plan.elastic import checkpoints, unpaid
from reconcilers.plan.elastic.change import Change, ChangeStep
from reconcilers.plan.elastic.current_request import UnderWay
from reconcilers.plan.in_place import drivers
from reconcilers.pods import grants, static_world
from reconcilers.values import EmitEvent
from reconcilers.views import pod_view

_REASONS = {IDLE: "Grown", GIVE_BACK: "GaveBack"}


def next_step(job: Change) -> ChangeStep | None:
    """Return the next write; None if none is due."""
    if job.run.admission.workers is None or job.run.admission.grown is None:
        return None
    return (
        take_up(job)
        or finish_removal(job)
        or _begin_removal(job)
        or _follow_join(job)
        or _give_up_unplaced(job)
        or _follow_wish(job)
        or _end_target(job)
    )


def _follow_wish(job: Change) -> ChangeStep | None:
    """Write that more workers are wanted, or that no more are wanted."""
    scaling, to = job.scaling, job.to(job.granted)
    if job.victims or job.save.remaining is not None:
        return None
    if not job.is_joining and (to <= job.granted or job.has_ended):
        return _end(job, scaling) if scaling is not None else None
    if scaling is not None and scaling.to == to:
        return None
    # A job that asks for more workers is as old as its new request; a job that asks for fewer does not lose its place.
    since = scaling.since if scaling is not None and to < scaling.to else job.now
    deadline = scaling.deadline if scaling is not None else None
    return job.write(job.change(since=since, deadline=deadline))


def _end(job: Change, scaling: Scaling) -> ChangeStep | None:
    """Write that no change is under way. A removal has ended once the others run without the removed workers."""
    if scaling.from_workers <= job.granted:
        return job.write(None)
    if job.is_restarting:
        return None
    return job.write(None, (_ended_event(scaling, job.granted, None, job.now, scaling.from_workers),))


def _end_target(job: Change) -> ChangeStep | None:
    """Remove a target that is over."""
    return job.write(job.scaling) if job.run.job.status.target is not None and job.target is None else None


def _ended_event(scaling: Scaling, after: int, target: Target | None, now: datetime, before: int) -> EmitEvent:
    """Return the Event for a change that has ended: who wanted it, the owner or the coordinator with its target."""
    message = f"from {before} to {after} workers in {(now - scaling.since).total_seconds():.0f} s"
    if target is not None and (after > before) == (target.reason == IDLE):
        return EmitEvent(_REASONS.get(target.reason, "Scaled"), f"{message}: {target.message}")
    since = timestamps.format_time(scaling.since.timestamp())
    return EmitEvent("Scaled", f"{message}, requested by {scaling.request or 'its owner'} at {since}")


def _not_joined_event(job: Change, victims: tuple[str, ...]) -> EmitEvent:
    """Return the Event for workers that are given up because they did not join in time. Such workers are added again
    where the owner wants them.
    """
    listed = pod_view.list_names(victims)
    message = f"workers did not join within {job.join_time.total_seconds():.0f} s: {listed}; they are removed"
    again = ", and added again later" if job.wish > job.granted - len(victims) else ""
    return EmitEvent("NotJoined", message + again, warning=True)


def _give_up_unplaced(job: Change) -> ChangeStep | None:
    """Name the workers as victims that do not run elsewhere in time, and others where the job may not have the number
    of workers that would be left."""
    spec, late = job.run.wanted.spec, [name for name, left in job.seconds_to_place.items() if left <= 0]
    policy, scope = spec.torch_elastic_policy, spec.worker_range
    if policy is None or not late or job.victims or job.is_joining or job.has_ended:
        return None
    unit = policy.replica_step if scope is None else scope.step
    spare = job.granted - spec.least_workers
    order = sorted(job.workers.choose(job.granted), key=lambda name: name not in late)
    count = sum(name in late for name in order)
    if spare <= 0 or not count:
        return None
    victims = tuple(order[: min(spare, count + (spare - count) % unit)])
    tries = job.scaling.tries + 1 if job.scaling is not None else 1
    pause = timedelta(seconds=status.pause(job.run.job, tries, job.at.settings.admission_backoff))
    change = job.change(from_workers=job.granted, victims=victims, tries=tries, not_before=job.now + pause)
    step = job.write(change, (_not_joined_event(job, victims),))
    left = {name: gone for name, gone in step.after.departed.items() if name not in victims}
    return replace(step, after=step.after.model_copy(update={"departed": left}))


def finish_removal(job: Change) -> ChangeStep | None:
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
    events: tuple[EmitEvent, ...] = (_ended_event(scaling, left, job.target, job.now, job.granted),)
    if rest is None and job.target is None and job.is_restarting:  # it is said when the others run without them
        rest, events = job.change(left, from_workers=job.granted), ()
    step = job.write(rest, events, admission, target=target, resized=resized)
    return replace(step, after=restart_counts.count_removal(job.run.job, step.after))


def _after_removal(job: Change, scaling: Scaling, left: int) -> Scaling | None:
    """Return the change that continues after a removal: other workers have yet to join, or another number is wanted."""
    if job.is_joining and scaling.from_workers < left and (job.missing or job.joining):
        return job.change(left, from_workers=scaling.from_workers, deadline=scaling.deadline)
    to = job.to(left)
    if to == left or job.has_ended:
        return None
    return job.change(left, from_workers=left, since=scaling.since if to <= scaling.to else job.now)


def _target_of(job: Change, left: int) -> Target | None:
    """Return the target after a removal. The target grants no given-up worker again, and no worker that the owner wants
    anyway."""
    if job.target is None or left <= job.wish:
        return None
    return job.target.model_copy(update={"workers": min(job.target.workers, left), "victims": ()})


def _seconds_to_grow(job: Change, scaling: Scaling) -> int:
    """Return how long the last growth took, which is also used after a removal. A growth that was given up took all of
    its time."""
    if scaling.tries and scaling.from_workers < job.granted <= scaling.to:
        return round(job.join_time.total_seconds())
    before = job.run.job.status.resized
    return before.seconds if before is not None else 0


def _begin_removal(job: Change) -> ChangeStep | None:
    """Name the workers that the job loses, because fewer are wanted or reserved. Named victims stay victims."""
    limit = job.reserved if job.has_ended else min(job.wanted, job.reserved)
    names = _leaving(job, len(job.staying) - limit)
    if not names:
        return None
    # Others need room that is not paid: it does not wait for a restart, which may last as long as a pod's grace.
    is_needed = unpaid.gives_back(job.target, job.wanted, job.run.admission)
    if job.is_restarting and not (is_needed or frozenset(names) <= frozenset(job.joining)):
        return None
    scaling, since, deadline = job.scaling, job.now, None
    if scaling is not None:
        goes_on = scaling.to == job.to(job.granted) or scaling.to < job.granted
        since, deadline = scaling.since if goes_on else job.now, scaling.deadline
    if job.may_save(names):
        if scaling is None or scaling.to >= job.granted:
            return job.write(job.change(since=job.now, deadline=deadline))
        if job.save.remaining is not None:
            return None
    victims = (*job.victims, *names)
    return job.write(job.change(since=since, deadline=deadline, victims=victims))


def _leaving(job: Change, surplus: int) -> tuple[str, ...]:
    """Return the workers to remove: first the workers that a request names, and all of its workers if the
    request names exactly these; else those first that the target names."""
    asked = job.asked
    if asked is None or asked.to != job.wish or job.has_ended:
        able = job.workers.choose(len(job.staying))
        first = [name for name in (job.target.victims if job.target is not None else ()) if name in able]
        return (*first, *(name for name in able if name not in first))[: max(surplus, 0)]
    named = [name for name in asked.victims if name in job.staying]
    others = (name for name in job.workers.choose(len(job.staying)) if name not in named)
    return (*named, *others)[: max(surplus, len(named) if asked.exact else 0, 0)]


def rest_of_admission(
    job: TorchJob, admission: Admission, now: datetime, asked: UnderWay | None = None
) -> Scaling | None:
    """Return the request for the workers that a new admission does not have; None if the admission has all of these
    workers.
    """
    workers, wish = admission.workers, job.spec.worker_count
    if workers is None or workers >= wish:
        return None
    request = asked.label if asked is not None and asked.to == wish else ""
    return Scaling(from_workers=workers, to=wish, since=now, request=request)


def take_up(job: Change) -> ChangeStep | None:
    """Write the workers that the store has granted beyond the admission, as far as they are still wanted.

    A grant of no further worker is the payment for idle workers.
    """
    held, admission = job.held, job.run.admission
    if held is None or held.grown <= (admission.grown or 0):
        return None
    if held.size <= job.granted:
        paid = {"grown": held.grown, "idle": min(admission.idle, held.idle), "declined": 0}
        return job.write(job.scaling, admission=admission.model_copy(update=paid))
    to = max(_acceptable(job, held.size), job.granted)
    idle = max(0, held.idle - (held.size - to))
    # A wish that its owner takes back stays paid: its room was idle, and the queue would have the next turn at once.
    refunded = held.grown if job.wish >= held.size else 0
    if to == job.granted:
        declined = {"grown": held.grown, "declined": refunded, "idle": idle}
        return job.write(_after_declining(job), admission=admission.model_copy(update=declined))
    change = {
        "workers": to,
        "indexes": grant.format_indexes(grants.add_indexes(admission, job.granted, to)),
        "charge": dict(
            held.charge if to == held.size else grants.grown_charge(job.run.wanted, admission, to, held.charge)
        ),
        "grown": held.grown,
        "declined": refunded if to < held.size else 0,
        "idle": idle,
    }
    scaling = job.change(to, deadline=job.now + job.join_time, not_before=None)
    return job.write(scaling, admission=admission.model_copy(update=change))


def _after_declining(job: Change) -> Scaling | None:
    """Return the change that continues after a growth was declined.

    The change asks for no more workers than are wanted, or the queue would grant the same growth again before the next
    write.
    """
    scaling = job.scaling
    if scaling is None or job.victims:
        return scaling
    if job.has_ended or (job.to(job.granted) <= job.granted and not job.is_joining):
        return None
    return job.change(deadline=scaling.deadline)


def _acceptable(job: Change, size: int) -> int:
    """Return how many workers of a larger reservation are still wanted."""
    to = min(size, job.wanted)
    is_part = to < job.wish and job.is_all_or_none
    return job.granted if job.has_ended or job.victims or is_part else to


def _follow_join(job: Change) -> ChangeStep | None:
    """End a growth whose workers all run, or give up those that did not join in time."""
    scaling, seconds = job.scaling, job.seconds_to_join
    if scaling is None or scaling.deadline is None or job.victims:
        return None
    if job.joining and not job.missing and not job.has_ended:
        return _join(job, scaling)
    if not job.missing and not job.joining:
        waits, tries = job.wish > job.granted and not job.has_ended, scaling.tries if scaling.not_before else 0
        rest = job.change(from_workers=job.granted, tries=tries) if waits else None
        target = job.target if job.run.admission.idle else None
        ended = _ended_event(scaling, job.granted, target, job.now, scaling.from_workers)
        took = (job.now - scaling.deadline + job.join_time).total_seconds()
        return job.write(rest, (ended,), resized=Resized(at=job.now, seconds=max(0, round(took))))
    # In the world that has begun last, they may have yet to run.
    if static_world.has_worlds(job.run.job, job.run.admission) and not job.joining:
        return None
    if job.has_ended:
        victims = tuple(job.joining) or _late_workers(job, scaling)
        return job.write(job.change(victims=victims))
    return _give_up(job, scaling) if seconds is not None and seconds <= 0 else None


def _join(job: Change, scaling: Scaling) -> ChangeStep | None:
    """Begin the world with the workers that wait for their rank, once the other workers have saved. The growth has
    ended when it runs.
    """
    in_place = drivers.can_restart_any(job.run.job, job.run.pods, job.at.settings)
    if in_place and checkpoints.must_save_in_place(job.run.wanted, job.run.pods):
        saving = checkpoints.begin(job.run.wanted, f"world/{job.run.job.status.restart_generation + 1}", job.now)
        if saving is not None:
            return job.write(scaling, saving=saving)
        if job.save.remaining is not None:
            return None
    change = job.change(deadline=scaling.deadline)
    return job.write(change, join=True, saving=None)


def _give_up(job: Change, scaling: Scaling) -> ChangeStep | None:
    """Name the added workers that did not join as victims. The remaining workers of the request wait again after a
    pause.
    """
    victims, tries = _late_workers(job, scaling), scaling.tries + 1
    if not victims:  # they wait for a pod that is never removed, or that is being replaced
        return None
    pause = timedelta(seconds=status.pause(job.run.job, tries, job.at.settings.admission_backoff))
    deadline = scaling.deadline if job.joining else None  # the others at their gates join later
    change = job.change(victims=victims, tries=tries, not_before=job.now + pause, deadline=deadline)
    return job.write(change, (_not_joined_event(job, victims),))


def _late_workers(job: Change, scaling: Scaling) -> tuple[str, ...]:
    """Return the workers to give up; all workers of a request that adds all or none."""
    ours = job.asked.added if job.asked is not None else ()
    added = job.granted - scaling.from_workers
    late = [name for name in job.missing if name in job.joining] if job.joining else job.missing
    return job.workers.choose_late(late, added, job.run.wanted.spec.worker_range, ours if job.is_all_or_none else None)
