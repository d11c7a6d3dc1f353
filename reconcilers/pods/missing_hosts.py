"""The Event about a job whose commands name the host file, while its pods get none.

One rule: pure. Only commands and variables of templates are looked at: most jobs of such an installation use torchrun
and need no host file.
"""

from collections.abc import Iterable
from typing import Any

from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import host_file
from reconcilers.pods.task_members import PodMember
from reconcilers.values import EmitEvent
from reconcilers.views import containers

NO_HOST_FILE = "NoHostFile"


def event(job: TorchJob, members: Iterable[PodMember]) -> tuple[EmitEvent, ...]:
    """Return the Event about the first of these pods that is to read a host file and has none; nothing without one."""
    named = {task_type: name for task_type, task in job.spec.tasks.items() if (name := _named(task.template["spec"]))}
    for member in members if named else ():
        if member.task_type in named and not host_file.has_file(job, member):
            message = f"{named[member.task_type]} is not set in {member.name}: {_cause(member)}"
            return (EmitEvent(NO_HOST_FILE, message, warning=True),)
    return ()


def _named(spec: dict[str, Any]) -> str:
    """Return the variable of hosts that a command or a variable of a template names; empty if none does."""
    texts = [
        str(text)
        for container in containers.all_containers(spec)
        for text in (
            *(container.get("command") or ()),
            *(container.get("args") or ()),
            *(entry.get("value") or "" for entry in container.get("env") or ()),
        )
    ]
    return next((name for name in host_file.VARIABLES for text in texts if name in text), "")


def _cause(member: PodMember) -> str:
    if member.world_size > host_file.MOST_HOSTS:
        return f"its world has more than {host_file.MOST_HOSTS} pods"
    return "torchq gives it no rank" if member.rank is None else "it trains with no other pod"
