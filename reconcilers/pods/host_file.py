"""The hosts of a pod's world as files, for launchers that read a host file or ask a script.

One rule: pure. The file follows an annotation of the pod, which a worker of torchq writes again when the world has
changed, before it restarts or removes any pod. So the file is true without a program in the pod that fetches it.

    TORCHQ_HOSTFILE         HOST slots=N     a line for each pod, in the order of ranks
    TORCHQ_DISCOVER_HOSTS   a script that prints the same as HOST:N; it needs a `sh`, and no other program

A host is the name of a pod, and its slots are the processes that torchrun starts in it. The pods of one world are the
ranked pods of one stage. Where ranks follow from nodes, nobody knows them before all pods are bound: the list comes
with the rank of the pod, by the write that opens its start gate. Worlds of more than `MOST_HOSTS` pods have no files,
because each pod has the names of all others.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from crds import labels
from crds.torchjob import grant
from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import pod_files, static_world, topology
from reconcilers.pods.environment import Variables
from reconcilers.pods.pod_files import PodFile
from reconcilers.pods.task_members import PodMember
from reconcilers.values import PatchPodMetadata
from reconcilers.views import pod_place
from reconcilers.views.pod_view import PodView

MOST_HOSTS = 1_024
"""The most hosts in a file: some 44 KB in each of so many pods, and never more than 76 KB."""
FILE, SCRIPT_FILE = "hosts", "discover-hosts"
SCRIPT = """#!/bin/sh
while read -r host slots; do echo "$host:${slots#slots=}"; done <"$TORCHQ_HOSTFILE"
"""


class Host(NamedTuple):
    """A pod of a world."""

    name: str
    slots: int


def hosts(job: TorchJob, admission: Admission, members: Iterable[PodMember], stage: int) -> list[Host]:
    """Return the pods with ranks of a stage, in the order of ranks."""
    ranked = [(each.rank, each) for each in members if each.stage == stage and each.rank is not None]
    ranked.sort(key=lambda each: each[0])
    return [Host(each.name, grant.processes(job, admission, each.task_type)) for _, each in ranked]


def text(world: Iterable[Host]) -> str:
    """Return the content of the file; empty for a world that is too large."""
    lines = [f"{host.name} slots={host.slots}\n" for host in world]
    return "".join(lines) if len(lines) <= MOST_HOSTS else ""


def texts(job: TorchJob, admission: Admission, members: Collection[PodMember]) -> dict[int, str]:
    """Return the content of the file for each stage."""
    stages = {member.stage for member in members}
    return {stage: text(hosts(job, admission, members, stage)) for stage in stages}


def corrections(
    job: TorchJob, admission: Admission, members: Mapping[str, PodMember], pods: Collection[PodView]
) -> tuple[PatchPodMetadata, ...]:
    """Return the writes of files that are not those of the world now. Pods that are ending need none, and pods whose
    start gate opens with a rank get their list then."""
    shown = [pod for pod in pods if pod.hosts and not pod.finished and not pod.deleting and pod.name in members]
    shown = [pod for pod in shown if not (pod.gated and topology.is_ordered(job, admission, members[pod.name]))]
    if not shown:
        return ()
    contents = texts(job, admission, members.values())
    digests = {stage: pod_place.hosts_digest({labels.HOSTS: content}) for stage, content in contents.items()}
    open_leads = _leads_without_ranks(job, admission, members, pods)
    outdated: dict[str, tuple[PodView, ...]] = {}
    for pod in shown:
        member = members[pod.name]
        if pod.hosts != digests[member.stage] and (member.lead not in open_leads or _moves(job, admission, pod)):
            content = contents[member.stage]
            outdated[content] = (*outdated.get(content, ()), pod)
    return tuple(PatchPodMetadata(group, {"annotations": {labels.HOSTS: new}}) for new, group in outdated.items())


def _leads_without_ranks(
    job: TorchJob, admission: Admission, members: Mapping[str, PodMember], pods: Collection[PodView]
) -> frozenset[str]:
    """Return the leads of the worlds whose ranks follow from nodes, while not all of their pods are bound. Meanwhile
    their pods keep the list that they have, which names the same pods."""
    if not admission.topology:
        return frozenset()
    placed = {member.lead for member in members.values() if topology.is_ordered(job, admission, member)}
    return frozenset(placed) - topology.are_bound(job, admission, members, pods)


def _moves(job: TorchJob, admission: Admission, pod: PodView) -> bool:
    """Return whether the pod gets its place in a new world now, before its restart."""
    return static_world.has_worlds(job, admission) and pod.restart != job.status.restart_generation


def has_file(job: TorchJob, member: PodMember) -> bool:
    """Return whether a new pod has the file: it trains with others, or may do so once the job has grown."""
    is_alone = member.world_size <= 1 and not job.spec.is_elastic
    return not (is_alone or member.world_size > MOST_HOSTS or (member.rank is None and not member.joins))


def annotations(job: TorchJob, admission: Admission, member: PodMember, world: str) -> dict[str, str]:
    """Return the annotations of a new pod that the files follow; `world` is the list of its world."""
    if not has_file(job, member):
        return {}
    known = {} if topology.is_ordered(job, admission, member) else {labels.HOSTS: world}
    return {labels.DISCOVER_HOSTS: SCRIPT, **known}


def with_rank(job: TorchJob, member: PodMember, world: str) -> dict[str, str]:
    """Return the annotation that comes with the rank of a pod whose rank follows from its node."""
    return {labels.HOSTS: world} if has_file(job, member) else {}


FILES: Mapping[str, PodFile] = {
    FILE: PodFile(labels.HOSTS),
    SCRIPT_FILE: PodFile(labels.DISCOVER_HOSTS, is_program=True),
}
VARIABLES: Variables = {
    "TORCHQ_HOSTFILE": pod_files.path(FILE),
    "TORCHQ_DISCOVER_HOSTS": pod_files.path(SCRIPT_FILE),
}
