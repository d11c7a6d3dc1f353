"""The ranks of a static world by the places of its pods, so that pods close to each other have ranks in a row.

One rule: pure. The labels of nodes are ordered, the widest first: block, rack, host. Rank 0 is always the lead's.

    pods                                  come
    in the lead's block                   before those of other blocks
    in the lead's rack of that block      before those of other racks
    in other blocks, racks, hosts         by the label
    without the label                     as a group of their own, last; the lead's own group is first all the same
    in the same groups                    by their task and index

The same holds for any number of labels. Ranks are given once all pods of the world are bound, before any of them runs.
A pod that runs keeps its rank; a pod that replaces another pod in the meantime gets the free rank.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from crds import labels
from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import environment
from reconcilers.pods.task_members import PodMember
from reconcilers.views import pod_place
from reconcilers.views.pod_view import PodView

NodeLabels = Mapping[str, Mapping[str, str]]
"""The labels of nodes, by the names of nodes and labels."""


@dataclass(frozen=True, slots=True)
class PodLocation:
    """Where a pod is: the values of the ordered labels of its node, empty where the node does not have the label."""

    name: str
    values: tuple[str, ...]


def order(locations: Sequence[PodLocation]) -> list[str]:
    """Return the names of pods in the order of their ranks. The pods are given by task and index, the lead first."""
    if not locations:
        return []
    lead = locations[0].values
    return [location.name for location in sorted(locations, key=lambda location: _key(location.values, lead))]


def _key(values: tuple[str, ...], lead: tuple[str, ...]) -> tuple[tuple[bool, bool, str], ...]:
    """Return the key that sorts a pod by its groups. Python's sort keeps the order of equal pods."""
    parts, with_lead = [], True
    for value, of_lead in zip(values, lead, strict=True):
        with_lead = with_lead and value == of_lead
        parts.append((not with_lead, not value, value))
    return tuple(parts)


def is_ordered(job: TorchJob, admission: Admission, member: PodMember) -> bool:
    """Return whether the place of a pod decides its rank. torchrun chooses the ranks at a rendezvous store; a job that
    may lack some of its ranks keeps the ranks of its indexes."""
    if not admission.topology or member.lead == "" or (member.rank is None and not member.joins):
        return False
    has_all_ranks = job.spec.is_elastic or not _may_lack_ranks(job, admission)
    meets = job.spec.rendezvous and job.pod_name("Rendezvous", 0) == member.lead
    return has_all_ranks and not meets and (member.world_size > 1 or job.spec.is_elastic)


def _may_lack_ranks(job: TorchJob, admission: Admission) -> bool:
    """Return whether a job that is not elastic may run without some of its pods. The job may have been granted only its
    least number of workers, so its size does not decide."""
    tasks = job.spec.torch_task_specs.items()
    lacks = any(job.spec.members(name) < task.num_tasks for name, task in tasks if not task.auxiliary)
    return admission.workers is not None or lacks


def rank(
    job: TorchJob, admission: Admission, members: Mapping[str, PodMember], pods: Iterable[PodView], nodes: NodeLabels
) -> Mapping[str, PodMember]:
    """Return the members of a job with the ranks that follow from the places of their pods."""
    if not admission.topology:
        return members
    ordered = [member for member in members.values() if member.rank is not None and is_ordered(job, admission, member)]
    by_name, ranks = {pod.name: pod for pod in pods}, dict[str, int]()
    for lead in dict.fromkeys(member.lead for member in ordered):
        names = [member.name for member in ordered if member.lead == lead]
        ranks |= _ranks(job, [_locate(name, by_name.get(name), admission, nodes) for name in names], by_name)
    return {name: replace(member, rank=ranks.get(name, member.rank)) for name, member in members.items()}


def annotations(member: PodMember, admission: Admission, node: str, nodes: NodeLabels) -> dict[str, str]:
    """Return the annotations with the rank of a pod on a node, and with the labels that gave it."""
    found = nodes.get(node, {})
    given = ",".join(f"{label}={found[label]}" for label in admission.topology if label in found)
    return {labels.RANK: str(member.rank), labels.TOPOLOGY: given}


def _locate(name: str, pod: PodView | None, admission: Admission, nodes: NodeLabels) -> PodLocation:
    found = nodes.get(pod.node, {}) if pod is not None else {}
    return PodLocation(name, tuple(found.get(label, "") for label in admission.topology))


def _ranks(job: TorchJob, world: Sequence[PodLocation], pods: Mapping[str, PodView]) -> dict[str, int]:
    """Return the ranks of the pods of one world, by name."""
    kept: dict[str, int] = {}
    for location in world:
        known = _known_rank(job, pods.get(location.name))
        if known is not None and known < len(world) and known not in kept.values():
            kept[location.name] = known
    free = [number for number in range(len(world)) if number not in kept.values()]
    return kept | dict(zip((name for name in order(world) if name not in kept), free, strict=True))


def _known_rank(job: TorchJob, pod: PodView | None) -> int | None:
    """Return the rank of a pod that has passed its start gate since the last restart of the whole job, or that gets its
    containers restarted with this rank in place."""
    if pod is None or pod.gated:
        return None
    is_current = pod.restart == job.status.restart_generation
    return pod_place.rank(pod.place) if is_current or pod.place.endswith(environment.rendezvous_id(job)) else None


def are_bound(
    job: TorchJob, admission: Admission, members: Mapping[str, PodMember], pods: Iterable[PodView]
) -> frozenset[str]:
    """Return the leads of the worlds all of whose pods are bound to nodes, so that their ranks can be given."""
    bound = {pod.name for pod in pods if _is_bound(job, pod)}
    leads: dict[str, bool] = {}
    for member in members.values():
        if member.rank is not None and is_ordered(job, admission, member):
            leads[member.lead] = leads.get(member.lead, True) and member.name in bound
    return frozenset(lead for lead, all_bound in leads.items() if all_bound)


def _is_bound(job: TorchJob, pod: PodView) -> bool:
    is_current = pod.restart == job.status.restart_generation
    return is_current and (not pod.gated or (bool(pod.node) and not pod.deleting and not pod.finished))
