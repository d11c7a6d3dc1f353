"""The world of a pod: the facts that its training code may ask about the pods with which the code trains.

One rule: pure, from the job as it is stored. The numbers are those that the workers of torchq use.

    size         the number of pods in the world, each once, whatever the number of processes in it
    rank         the rank of the pod; null if torchrun chooses the ranks, or if the pod is in no world
    min, max     the bounds of the number of workers; null if they are fixed, or if there is no upper bound
    generation   the number of restarts of the whole job
    target       the number of workers that the job is to have
    hosts        [{"host": NAME, "slots": N}], the pods of the world in the order of ranks, with the processes that
                 torchrun starts in each; null if the pod is in no world, or while ranks that follow from nodes are not
                 given
    checkpoint   only while the workers are asked to save: the number of the request, which a report answers
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import environment, host_file, task_members, topology
from reconcilers.pods.grants import Grant
from reconcilers.pods.task_members import PodMember


def document(job: TorchJob, pod: str, written_rank: Callable[[str], int | None] = lambda _: None) -> dict[str, Any]:
    """Return the world of a pod of a job; without the name of a pod, the world of its workers. `written_rank` returns
    the rank that is an annotation of the pod of a name.
    """
    members = Grant(job, job.admission).members if job.admission is not None else {}
    member = members.get(pod) or next((each for each in members.values() if each.task_type == WORKER), None)
    policy = job.spec.torch_elastic_policy if job.spec.is_elastic else None
    asked = {"checkpoint": job.save_request} if job.save_request else {}
    return {
        "size": member.world_size if member is not None else 0,
        "rank": _rank(job, member, written_rank(pod)) if member is not None and member.name == pod else None,
        "min": None if policy is None else policy.num_min_replicas or environment.FEWEST_WORKERS,
        "max": None if policy is None else policy.num_max_replicas,
        "generation": job.status.restart_generation,
        "target": job.wanted_workers,
        "hosts": _hosts(job, member, members.values(), written_rank),
        **asked,
    }


def _hosts(
    job: TorchJob, member: PodMember | None, members: Iterable[PodMember], written_rank: Callable[[str], int | None]
) -> list[dict[str, Any]] | None:
    admission = job.admission
    if member is None or admission is None or member.rank is None:
        return None
    if topology.is_ordered(job, admission, member):
        ranked = [each for each in members if each.stage == member.stage and each.rank is not None]
        members = [replace(each, rank=written_rank(each.name)) for each in ranked]
        if {each.rank for each in members} != set(range(len(ranked))):
            return None
    found = host_file.hosts(job, admission, members, member.stage)
    return [{"host": each.name, "slots": each.slots} for each in found]


def _rank(job: TorchJob, member: PodMember, written: int | None) -> int | None:
    """Return the rank of a pod: the rank in its places, or the rank that follows from the job. torchrun may choose
    it."""
    if member.task_type in task_members.meeting_tasks(job.spec):
        return None
    by_place = job.admission is not None and topology.is_ordered(job, job.admission, member)
    return written if by_place else member.rank
