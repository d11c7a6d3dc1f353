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

The coordinator may want another number of workers than the owner (`status.target`). What it wants beyond the owner's
number is granted without a request, and paid for when the owner wants it, too.

A change does not restart the job: it keeps its start time, its counts, its attempt and its port. In the mode
InPlaceRestart it restarts the containers of all pods (`reconcilers.plan.worlds`). Once a worker has succeeded nothing
grows any more.
"""

from crds.torchjob.status import Scaling
from reconcilers.plan.scaling import growth, removal, resize_events, unplaced
from reconcilers.plan.scaling.resize import Resize, ScalingStep


def next_step(job: Resize) -> ScalingStep | None:
    """Return the next write; None if none is due."""
    if job.run.admission.workers is None or job.run.admission.grown is None:
        return None
    return (
        growth.take_up(job)
        or removal.finish(job)
        or removal.begin(job)
        or growth.follow_join(job)
        or unplaced.give_up(job)
        or _follow_wish(job)
        or _end_target(job)
    )


def _follow_wish(job: Resize) -> ScalingStep | None:
    """Write that more workers are wanted, or that no more are wanted."""
    scaling, to = job.scaling, job.to(job.granted)
    if job.victims or job.save.remaining is not None:
        return None
    if not job.is_joining and (to <= job.granted or job.has_ended):
        return _end(job, scaling) if scaling is not None else None
    if scaling is not None and scaling.to == to:
        return None
    # Who asks for more is as old as the new request; who asks for less does not lose his place.
    since = scaling.since if scaling is not None and to < scaling.to else job.now
    deadline = scaling.deadline if scaling is not None else None
    return job.write(job.change(from_workers=job.base, since=since, deadline=deadline))


def _end(job: Resize, scaling: Scaling) -> ScalingStep | None:
    """Write that no change is under way. A removal has ended once the others run without the removed workers."""
    if scaling.from_workers <= job.granted:
        return job.write(None)
    if job.is_restarting:
        return None
    return job.write(None, (resize_events.ended(scaling, job.granted, None, job.now, scaling.from_workers),))


def _end_target(job: Resize) -> ScalingStep | None:
    """Remove a target that is over."""
    return job.write(job.scaling) if job.run.job.status.target is not None and job.target is None else None
