"""Start gates: pods that are bound with their gang, but may not start before others do.

One rule: pure. A gate is an init container that waits for an annotation; it opens once, and never closes.

All pods of a stage are bound at once, or a gang that waits for its master and a master that waits for its gang would
wait for each other for ever. Without a gang scheduler there are no gates: pods are made when they may start.

The init container is of the main container's image and asks for what the main container asks for of cpu, memory and
the like, so that the pod asks for no more than before, keeps its quality of service, and passes a quota that wants
every container to ask for something. Its shell needs `sh` and `sleep`.
"""

from collections.abc import Iterable
from typing import Any

from crds import labels
from crds.torchjob.tasks import TaskSpec
from reconcilers.plan.progress import JobProgress
from reconcilers.values import Action, PatchPodMetadata
from reconcilers.views import containers
from reconcilers.views.pod_view import PodView

FOLDER = "/etc/torchq"
VARIABLE = "TORCHQ_VOLUME_TORCHQ_START"
"""Where the folder is on a node that has no mounts of its own."""
SCRIPT = f'trap "exit 143" TERM; until [ -s "${VARIABLE}/open" ]; do sleep 0.2; done'
"""A shell that is a container's first process ignores what it does not trap."""
SHARED = ("cpu", "memory", "ephemeral-storage")
OPEN = "open"


def needs_gate(task: TaskSpec) -> bool:
    """Whether pods of a task that are bound with their gang have to wait for others."""
    return not task.auxiliary and any(dependency.phase == "Running" for dependency in task.depends_on)


def add_gate(spec: dict[str, Any]) -> None:
    """Put the gate into a fresh copy of a template, before whatever else the pod does."""
    main = containers.main(spec)
    inherited: dict[str, Any] = {name: main[name] for name in ("imagePullPolicy", "securityContext") if name in main}
    gate = {
        "name": containers.GATE,
        "image": main.get("image", ""),
        **inherited,
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": VARIABLE, "value": FOLDER}],
        "resources": _resources(main),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": containers.GATE, "mountPath": FOLDER, "readOnly": True}],
    }
    opened = {"path": "open", "fieldRef": {"fieldPath": f"metadata.annotations['{labels.START}']"}}
    spec["initContainers"] = [gate, *(spec.get("initContainers") or ())]
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        {"name": containers.GATE, "downwardAPI": {"items": [opened]}},
    ]


def _resources(main: dict[str, Any]) -> dict[str, Any]:
    resources = main.get("resources") or {}
    return {
        kind: {name: amount for name, amount in (resources.get(kind) or {}).items() if name in SHARED}
        for kind in ("requests", "limits")
        if resources.get(kind)
    }


def open_gates(progress: JobProgress, pods: Iterable[PodView]) -> tuple[Action, ...]:
    """Open the gates of pods whose time has come."""
    started = {task_type.lower() for task_type in progress.started}
    waiting = tuple(pod for pod in pods if pod.gated and pod.task in started and not (pod.deleting or pod.finished))
    return (PatchPodMetadata(waiting, {"annotations": {labels.START: OPEN}}),) if waiting else ()
