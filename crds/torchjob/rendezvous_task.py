"""The task Rendezvous of an elastic job: one pod with the store at which the workers meet.

One rule: pure, over the fields of a spec as they are written. The task is implied when a job is parsed and never
stored. A task of that name in the job replaces the implied task.

The workers wait until the store runs, and so does a Master that belongs to their world. The implied store waits for the
same successes as the workers.

A worker that hosted the store would end the whole job with itself. The program of the store needs Python and torch
alone, so that it runs in the image of the workers. The rendezvous task ends only by a signal. SIGTERM is handled,
because the first process of a container ignores it otherwise. The signal is handled before torch is imported, which
takes seconds, and the end is a failure: without the store no worker can continue.
"""

from collections.abc import Mapping
from typing import Any

from crds.torchjob import size_limits
from crds.torchjob.launched_processes import MAIN
from crds.torchjob.tasks import MASTER, RENDEZVOUS, WORKER, leads_to, with_defaults

REQUESTS = {"cpu": "50m", "memory": "320Mi"}
"""What the store requests. It takes 220 MB, which is the import of torch."""
PORT_VARIABLE = "TORCHQ_RENDEZVOUS_PORT"
"""The variable with the port on which the store listens."""
PROGRAM = f"""\
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
from torch.distributed import TCPStore
port = int(os.environ["{PORT_VARIABLE}"])
store = TCPStore("localhost", port, is_master=True, wait_for_workers=False)
print(f"the rendezvous store listens on port {{store.port}}", flush=True)
while True:
    signal.pause()
"""
"""The program of the store, for `python -c`."""
MOST_OTHERS = size_limits.MOST_TASK_TYPES - 1
"""Maximum number of other task types."""
_SHARED = (
    "imagePullSecrets",
    "serviceAccountName",
    "serviceAccount",
    "tolerations",
    "priorityClassName",
    "securityContext",
)
"""The fields of the workers' pods that the store's pod needs too: to get the image, to be admitted to the namespace,
to find a node, and not to be preempted before the workers. It selects no nodes, so it needs none with GPUs."""
_SHARED_BY_CONTAINER = ("image", "imagePullPolicy", "securityContext")


def with_rendezvous(spec: Any) -> Any:
    """Return the fields of a spec with the task Rendezvous, if its workers meet at a store.

    Malformed fields are left to the validation.
    """
    match spec:
        case {"torchElasticPolicy": dict(policy), "torchTaskSpecs": dict(declared)} if _has_store(policy, declared):
            return spec | {"torchTaskSpecs": _with_store(with_defaults(declared))}
    return spec


def template(worker: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of the implied task, from the template of the workers."""
    pod: Mapping[str, Any] = worker["spec"]
    containers: list[Mapping[str, Any]] = pod["containers"]
    main = next((container for container in containers if container.get("name") == MAIN), containers[0])
    store = {"name": MAIN, **_some(main, _SHARED_BY_CONTAINER), "resources": {"requests": REQUESTS}}
    return {
        "spec": {
            **_some(pod, _SHARED),
            "containers": [{**store, "command": ["python", "-c", PROGRAM]}],
        }
    }


def _some(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _has_store(policy: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Return whether the workers meet at a store, and the job can have the task.

    A stored job may have no room for the task, or a task that differs from it only in case, with the same pod name.
    """
    if policy.get("mode", "Rendezvous") != "Rendezvous" or not _is_sound(declared.get(WORKER)):
        return False
    if RENDEZVOUS in declared:
        return isinstance(declared[RENDEZVOUS], dict)
    return len(declared) <= MOST_OTHERS and RENDEZVOUS.lower() not in {str(name).lower() for name in declared}


def _is_sound(worker: Any) -> bool:
    match worker:
        case {"template": {"spec": {"containers": [*containers]}}}:
            dependencies = worker.get("dependsOn", ())
            return bool(containers) and all(isinstance(each, dict) for each in (*containers, *_items(dependencies)))
    return False


def _items(dependencies: Any) -> tuple[Any, ...]:
    return tuple(dependencies) if isinstance(dependencies, list | tuple) else (None,)


def _with_store(tasks: dict[str, Any]) -> dict[str, Any]:
    """Return the tasks with the store, and let the tasks that meet there wait for the store; `tasks` have their
    defaults.
    """
    worker, fixed = tasks[WORKER], {"auxiliary": True, "critical": True}
    successes = _successes(tasks, WORKER)
    # In the stage of the workers, the store takes no room beside the stages before.
    waits = tuple({"taskType": name, "phase": "Succeeded"} for name in sorted(successes))
    implied = {"template": template(worker["template"]), "dependsOn": waits}
    completed = tasks | {RENDEZVOUS: fixed | tasks.get(RENDEZVOUS, implied)}
    meeting = [WORKER, MASTER] if MASTER in tasks and _successes(tasks, MASTER) == successes else [WORKER]
    return completed | {
        name: _wait_for_store(tasks[name]) for name in meeting if not leads_to(completed, RENDEZVOUS, name)
    }


def _wait_for_store(task: Any) -> Any:
    """Return a task that waits until the store runs, unless its own dependencies name the store."""
    dependencies = task.get("dependsOn", ()) if isinstance(task, dict) else None
    if RENDEZVOUS in (name for name, _ in _upstreams(task)) or not isinstance(dependencies, list | tuple):
        return task
    return task | {"dependsOn": (*dependencies, {"taskType": RENDEZVOUS, "phase": "Running"})}


def _successes(tasks: Mapping[str, Any], start: str) -> set[str]:
    """Return the tasks for whose success a task waits, directly or through tasks that it waits for.

    A task that never succeeds, or that does not exist, is reported where it is declared.
    """
    found, ahead, visited = set(), [start], {start}
    while ahead:
        for name, phase in _upstreams(tasks.get(ahead.pop())):
            if name in visited or name == RENDEZVOUS or not isinstance(tasks.get(name), dict):
                continue
            if phase != "Succeeded":
                visited.add(name)
                ahead.append(name)
            elif tasks[name].get("restartPolicy") != "Always":
                found.add(name)
    return found


def _upstreams(task: Any) -> list[tuple[str, Any]]:
    """Return the tasks that a task waits for, each with the phase; a malformed entry is left out."""
    dependencies = _items(task.get("dependsOn", ())) if isinstance(task, dict) else ()
    entries = [entry for entry in dependencies if isinstance(entry, dict) and isinstance(entry.get("taskType"), str)]
    return [(entry["taskType"], entry.get("phase", "Running")) for entry in entries]
