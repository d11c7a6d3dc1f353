"""The world that follows from a change of the number of workers, where each world has a restart generation of its own.

One rule: pure, from one status to the next. The write that changes the workers also begins the new world, so that a
resize costs no further write, and any other worker can go on from the status.

    change                                          the world that follows
    workers are added                               the same: the added ones wait at their start gates
    all of them are at their gates                  a new one, with them
    workers that have yet to join are removed       the same
    other workers are removed                       a new one without them; it begins while they still end

A new world restarts all pods (`reconcilers.plan.worlds.restarts`), which is no failure: nothing is counted.
"""

from datetime import datetime

from crds.torchjob import grant
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import status
from reconcilers.pods import static_world
from reconcilers.pods.grants import Grant


def follow(
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
    return after if world == old else _begin(job, after, now, in_place=in_place, with_grace=with_grace)


def _begin(job: TorchJob, after: TorchJobStatus, now: datetime, *, in_place: bool, with_grace: bool) -> TorchJobStatus:
    """Begin a world: it has all pods with another restart generation."""
    number = after.restart_generation + 1
    begun = after.model_copy(update={"restart_generation": number, "replacing": ()})
    if with_grace:
        begun = begun.model_copy(update={"recreate_generation": number})
    if (in_place and not with_grace) or begun.phase != "Running":
        return begun
    message = WITH_GRACE if with_grace else MESSAGE
    return status.enter(job.model_copy(update={"status": begun}), "Admitted", "Restarting", message, now)


MESSAGE = "its pods are replaced, because their number has changed and their containers cannot be restarted in place"
WITH_GRACE = "its pods are replaced with their grace period, because their number has changed"
