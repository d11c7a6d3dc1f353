"""The pods with which a job starts, as the placement on nodes counts them.

One rule: equal gangs are one object for as long as anybody has it. Every unfinished job keeps its gang, and if it has
another one than before, all waiting jobs are read anew.
"""

from collections.abc import Iterable
from weakref import WeakValueDictionary

from crds import node_requirements
from crds.torchjob import demand
from crds.torchjob.demand import FirstPods
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from queues.placement.gangs import Gang, Members, Shape

_KNOWN: WeakValueDictionary[object, Gang] = WeakValueDictionary()
"""By what decides about a gang, the gangs that somebody has."""


def of(job: TorchJob) -> Gang:
    """Return the gang of a job. A job that has its domain asks for no other one: its pods name the domain."""
    topology, has_domain = job.spec.scheduling_policy.topology, job.admission is not None and job.admission.domain
    required = "" if has_domain else topology.required
    later = later_pods(job) if required else ()
    known = job.first_pods, len(job.spec.stages) == 1, required, topology.preferred, later
    return _KNOWN.get(known) or _KNOWN.setdefault(known, _gang(*known))


def later_pods(job: TorchJob) -> tuple[tuple[FirstPods, ...], ...]:
    """Return the pods of a job that start together in each later stage."""
    spec, shares, avoided = job.spec, job.shares, job.status.excluded_nodes
    return tuple(demand.stage_pods(spec, stage, shares, avoided) for stage in spec.stages[1:])


def settle(shape: Shape, domain: str) -> Shape:
    """Return a shape that may run in one domain alone (`queues.placement.places.Settle`)."""
    return Shape(shape.demand, node_requirements.in_domain(shape.where, domain))


def growth(gang: Gang, workers: int) -> Gang | None:
    """Return a gang of further workers alone; None if the workers of the gang are not known."""
    further = gang.further
    if further is None:
        return None
    made = Gang((Members(further, workers),), further, preferred=gang.preferred)
    known = further, workers, gang.preferred
    return _KNOWN.get(known) or _KNOWN.setdefault(known, made)


def _gang(
    pods: tuple[FirstPods, ...], lasting: bool, required: str, preferred: str, later: tuple[tuple[FirstPods, ...], ...]
) -> Gang:
    workers = [Shape(each.share, each.place) for each in pods if each.task_type == WORKER]
    stages = tuple(members(stage) for stage in later)
    return Gang(members(pods), workers[0] if workers else None, lasting, required, preferred, stages)


def members(pods: Iterable[FirstPods]) -> tuple[Members, ...]:
    """Return pods that start together, by their shapes."""
    counts: dict[Shape, int] = {}
    for each in pods:
        shape = Shape(each.share, each.place)
        counts[shape] = counts.get(shape, 0) + each.pods
    return tuple(Members(shape, count) for shape, count in counts.items() if count)
