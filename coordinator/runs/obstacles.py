"""The parts of a valid TorchJob that cannot work, as far as torchq can tell without a coordinator: its commands, ports,
model and gangs.

One rule: only a certain obstacle is a finding. The lack of an object that an admin may install later is a warning,
and where this account may not look, there is no finding.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coordinator.routing.feasibility import TASKS, Obstacle
from coordinator.runs import commands
from crds import labels
from crds.api_resources import POD_GROUPS
from crds.torchjob.tasks import MASTER, WORKER
from gang import backends
from kube import errors
from kube.api import Cluster, Manifest

WITH_RANKS = (MASTER, WORKER)
STANDALONE = (
    "torchrun --standalone makes a world of its own in each of the {} pods, which do not train together: leave out "
    "--standalone"
)
SCHEDULER, QUEUE = "spec.schedulingPolicy.gangScheduler", "spec.schedulingPolicy.gangQueue"


def of_commands(body: Manifest, *, embedded: bool) -> Iterator[Obstacle]:
    """Yield an obstacle for each container whose command cannot run, and for torchrun on one node alone in a job of
    several nodes. The folder of submission matters on one machine alone, where jobs run in it."""
    annotations = body["metadata"].get("annotations") or {}
    folder = annotations.get(labels.SUBMIT_DIRECTORY, "") if embedded else ""
    tasks = body["spec"]["torchTaskSpecs"]
    for field, container in _containers(tasks):
        if problem := _problem(container, folder):
            yield Obstacle("CannotStart", field, problem)
    ranks = {name: tasks[name] for name in WITH_RANKS if name in tasks}
    nodes = sum(task.get("numTasks", 1) for task in ranks.values())
    alone = (field for field, container in _containers(ranks) if commands.is_standalone(_words(container)))
    if nodes > 1 and (first := next(alone, None)):
        yield Obstacle("Standalone", first, STANDALONE.format(nodes), firm=False)


def _containers(tasks: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path of the command of each container, and the container."""
    for task_type, task in tasks.items():
        for kind in ("initContainers", "containers"):
            for index, container in enumerate(task["template"]["spec"].get(kind) or ()):
                yield f"{TASKS}.{task_type}.template.spec.{kind}[{index}].command", container


def _words(container: dict[str, Any]) -> list[str]:
    return [str(word) for field in ("command", "args") for word in container.get(field) or ()]


def _problem(container: dict[str, Any], folder: str) -> str:
    if not container.get("command"):
        return ""  # the image has the command, or the node refuses it
    command = _words(container)
    place = container.get("workingDir") or folder
    is_there = bool(folder and place) and Path(place).is_dir()  # the folder of packed code is made by the pod
    known = commands.read(command, Path(place), here=True) if is_there else commands.NOWHERE
    return commands.problem(command, known)


def of_ports(body: Manifest, *, embedded: bool) -> Iterator[Obstacle]:
    """Yield an obstacle for each port that two pods would take of the machine which all pods share.

    Only ports that a template names as `hostPort` are checked; torchq may choose the ports of host networking.
    """
    first: dict[int, str] = {}
    for task_type, task in body["spec"]["torchTaskSpecs"].items() if embedded else ():
        containers = task["template"]["spec"].get("containers") or ()
        ports = [port for container in containers for port in container.get("ports") or ()]
        of_tcp = (port.get("hostPort") for port in ports if port.get("protocol", "TCP") == "TCP")
        for number in dict.fromkeys(filter(None, of_tcp)):
            other = first.setdefault(number, task_type)
            if other != task_type or task.get("numTasks", 1) > 1:
                yield Obstacle(
                    "HostPortTwice",
                    f"{TASKS}.{task_type}.template.spec",
                    f"several pods of the job want port {number} of the machine that all pods share (hostPort): leave "
                    "hostPort out",
                )


def of_sharing(body: Manifest, *, embedded: bool) -> Iterator[Obstacle]:
    """Yield a note for each field that asks for what all pods of one machine have anyway."""
    for task_type, task in body["spec"]["torchTaskSpecs"].items() if embedded else ():
        for field in ("hostNetwork", "hostIPC"):
            if task["template"]["spec"].get(field):
                message = "changes nothing: on this cluster, all pods share the network and the IPC of the machine"
                yield Obstacle("SharedHost", f"{TASKS}.{task_type}.template.spec.{field}", message, firm=False)


def of_model(body: Manifest, *, embedded: bool) -> Iterator[Obstacle]:
    """Yield a warning for a model whose files would end with the pods. On one machine, each job has a folder."""
    spec = body["spec"]
    if spec.get("modelOutput") and not (embedded or spec.get("outputs")):
        message = (
            "the files of the model end with the pods, and no ModelVersion is made, because spec.outputs names no claim"
        )
        yield Obstacle("ModelNotKept", "spec.modelOutput", message, firm=False)


def of_gangs(cluster: Cluster, body: Manifest) -> Iterator[Obstacle]:
    """Yield the warnings that a cluster lacks the kind of the job's gangs, or the queue of the gang scheduler."""
    policy = body["spec"].get("schedulingPolicy") or {}
    named, queue = policy.get("gangScheduler"), policy.get("gangQueue")
    if not (named or queue):
        return
    with contextlib.suppress(errors.ClusterError):
        backend = backends.get_backend(named or ("volcano" if cluster.serves(POD_GROUPS) else None), cluster.serves)
        if backend.resource is not None and not cluster.serves(backend.resource):
            message = (
                f"the cluster has no {backend.resource.plural}.{backend.resource.group}, without which {backend.name} "
                "binds no gang: the job gets room and no pods until an admin installs it"
            )
            yield Obstacle("PodGroupMissing", SCHEDULER, message, firm=False)
        elif queue and backend.queues is not None:
            manifest: Manifest | None = None
            with contextlib.suppress(errors.NotFound):
                manifest = cluster.get(backend.queues, queue)
            if (refusal := backend.refusal(queue, manifest)) is not None:
                yield Obstacle(refusal[0], QUEUE, refusal[1], firm=False)
