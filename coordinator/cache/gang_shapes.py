"""The pods with which a job starts, as the placement on nodes counts them.

One rule: equal gangs are one object for as long as anybody has it. Every unfinished job keeps its gang, and if it has
another one than before, all waiting jobs are read anew.
"""

from weakref import WeakValueDictionary

from crds.torchjob.demand import FirstPods
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from queues.placement.gangs import Gang, Members, Shape

_KNOWN: WeakValueDictionary[object, Gang] = WeakValueDictionary()
"""By what decides about a gang, the gangs that somebody has."""


def of(job: TorchJob) -> Gang:
    """Return the gang of a job."""
    pods, lasting = job.first_pods, len(job.spec.stages) == 1
    return _KNOWN.get((pods, lasting)) or _KNOWN.setdefault((pods, lasting), _gang(pods, lasting))


def growth(gang: Gang, workers: int) -> Gang | None:
    """Return a gang of further workers alone; None if the workers of the gang are not known."""
    further = gang.further
    if further is None:
        return None
    made = Gang((Members(further, workers),), further)
    return _KNOWN.get((further, workers)) or _KNOWN.setdefault((further, workers), made)


def _gang(pods: tuple[FirstPods, ...], lasting: bool) -> Gang:
    counts: dict[Shape, int] = {}
    further = None
    for each in pods:
        shape = Shape(each.share, each.place)
        counts[shape] = counts.get(shape, 0) + each.pods
        further = shape if each.task_type == WORKER else further
    members = tuple(Members(shape, count) for shape, count in counts.items() if count)
    return Gang(members, further, lasting)
