"""The pods with which a job starts, as the placement on nodes counts them.

One rule: pure. Equal gangs are one object, because every unfinished job keeps its gang.
"""

from functools import lru_cache

from crds.torchjob.demand import FirstPods
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from queues.placement.gangs import Gang, Members, Shape


def of(job: TorchJob) -> Gang:
    """Return the gang of a job."""
    return _gang(job.first_pods, len(job.spec.stages) == 1)


def growth(gang: Gang, workers: int) -> Gang | None:
    """Return a gang of further workers alone; None if the workers of the gang are not known."""
    return None if gang.further is None else _growth(gang.further, workers)


@lru_cache(4096)
def _gang(pods: tuple[FirstPods, ...], lasting: bool) -> Gang:
    counts: dict[Shape, int] = {}
    further = None
    for each in pods:
        shape = Shape(each.share, each.place)
        counts[shape] = counts.get(shape, 0) + each.pods
        further = shape if each.task_type == WORKER else further
    members = tuple(Members(shape, count) for shape, count in counts.items() if count)
    return Gang(members, further, lasting)


@lru_cache(4096)
def _growth(shape: Shape, workers: int) -> Gang:
    return Gang((Members(shape, workers),), shape)
