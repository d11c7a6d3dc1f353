"""The worlds of an elastic job in the mode InPlaceRestart: pods that train together, with ranks that torchq chooses.

One rule: pure. A world does not change: another number of workers is another world, under another restart generation of
the job. The ranks are the positions of the pods among the pods of the world, and are annotations of the pods.
"""

from collections.abc import Mapping

from crds import labels
from crds.torchjob import grant
from crds.torchjob.status import Admission
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import environment
from reconcilers.pods.task_members import PodMember


def has_worlds(job: TorchJob, admission: Admission | None) -> bool:
    """Return whether the ranks of an admitted job's pods change with its number of workers.

    A version that did not count growths gave its pods ranks that do not change.
    """
    return job.spec.has_static_worlds and admission is not None and admission.grown is not None


def is_member(job: TorchJob, admission: Admission | None, member: PodMember) -> bool:
    """Return whether a pod has a rank in the worlds of the workers, or is about to get a rank."""
    if not has_worlds(job, admission) or (member.rank is None and not member.joins):
        return False
    return any(stage.index == member.stage and WORKER in stage.tasks for stage in job.spec.stages)


def has_yet_to_join(job: TorchJob, task: str, index: int) -> bool:
    """Return whether a pod is an added worker that waits for a rank; `task` is its task type in lower case."""
    scaling = job.status.scaling
    if task != WORKER.lower() or scaling is None or scaling.world is None or not job.spec.has_static_worlds:
        return False
    return index not in grant.parse_indexes(scaling.world)


def places(
    job: TorchJob, admission: Admission | None, members: Mapping[str, PodMember]
) -> dict[str, Mapping[str, str]]:
    """Return the annotations of the pods that have a place in the job's world, by name."""
    found = {name: annotations(job, admission, member) for name, member in members.items()}
    return {name: place for name, place in found.items() if place}


def annotations(job: TorchJob, admission: Admission | None, member: PodMember) -> Mapping[str, str]:
    """Return the annotations with the place of a pod in the job's world; none for a pod without such a place."""
    if member.rank is None or not is_member(job, admission, member):
        return {}
    return {
        labels.RANK: str(member.rank),
        labels.WORLD_SIZE: str(member.world_size),
        labels.RENDEZVOUS_ID: environment.rendezvous_id(job),
    }
