"""The start gate of a pod: the init container that keeps a bound pod from starting before other pods do.

One rule: pure, over opaque pod specs. The gate waits for an annotation; the gate opens once, and never closes.

A gang scheduler binds all pods of a stage at once. Otherwise a gang that waits for its master and a master that waits
for its gang would block each other. Without a gang scheduler there are no gates: pods are created when they may start.
`reconcilers.plan.advance` opens a gate when the task's upstream tasks have progressed far enough.

The init container uses the main container's image and its requests of cpu, memory and ephemeral storage. So the pod
requests no more than before, keeps its quality of service, and passes a quota that demands requests of every
container. The image needs `sh` and `sleep`.
"""

from typing import Any

from crds import labels
from crds.torchjob.tasks import TaskSpec
from reconcilers.views import containers

FOLDER = "/etc/torchq"
VARIABLE = "TORCHQ_VOLUME_TORCHQ_START"
"""The variable with the folder's path on a node that has no mounts of its own."""
FILE = "open"
SCRIPT = f'trap "exit 143" TERM; until [ -s "${VARIABLE}/{FILE}" ]; do sleep 0.2; done'
"""The script of the gate. It traps SIGTERM, which a shell ignores as the first process of a container."""
SHARED = ("cpu", "memory", "ephemeral-storage")
"""The resources that the gate requests as the main container does."""
OPEN = "open"
"""The annotation's value that opens the gate."""


def needs_gate(task: TaskSpec) -> bool:
    """Return whether pods of a task that are bound with their gang have to wait for other pods."""
    return not task.auxiliary and any(dependency.phase == "Running" for dependency in task.depends_on)


def add_gate(spec: dict[str, Any]) -> None:
    """Add the gate to a fresh copy of a template, before all other init containers."""
    containers.add_helper(
        spec,
        FOLDER,
        FILE,
        labels.START,
        name=containers.GATE,
        command=["sh", "-c", SCRIPT],
        env=[{"name": VARIABLE, "value": FOLDER}],
        resources=_shared_resources(containers.main(spec)),
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _shared_resources(main: dict[str, Any]) -> dict[str, Any]:
    resources = main.get("resources") or {}
    return {
        kind: {name: amount for name, amount in (resources.get(kind) or {}).items() if name in SHARED}
        for kind in ("requests", "limits")
        if resources.get(kind)
    }
