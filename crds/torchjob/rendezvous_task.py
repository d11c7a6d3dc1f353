"""The task Rendezvous of an elastic job: one pod with the store at which the workers meet.

One rule: pure, over the fields of a spec as they are written. The task is implied when a job is parsed and never
stored. A task of that name in the job takes its place.
"""

from collections.abc import Mapping
from typing import Any

from crds.torchjob import rendezvous_store, size_limits
from crds.torchjob.processes import MAIN
from crds.torchjob.tasks import RENDEZVOUS, WORKER, leads_to, with_defaults

REQUESTS = {"cpu": "50m", "memory": "320Mi"}
"""What the store requests. It takes 220 MB, which is the import of torch."""
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
    """Return the template of the implied task, from that of the workers."""
    pod: Mapping[str, Any] = worker["spec"]
    containers: list[Mapping[str, Any]] = pod["containers"]
    main = next((container for container in containers if container.get("name") == MAIN), containers[0])
    store = {"name": MAIN, **_some(main, _SHARED_BY_CONTAINER), "resources": {"requests": REQUESTS}}
    return {
        "spec": {
            **_some(pod, _SHARED),
            "containers": [{**store, "command": ["python", "-c", rendezvous_store.PROGRAM]}],
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
    """Return the tasks with the store; `tasks` have their defaults."""
    worker = tasks[WORKER]
    store = {"auxiliary": True, "critical": True} | tasks.get(RENDEZVOUS, {"template": template(worker["template"])})
    dependencies = tuple(worker.get("dependsOn", ()))
    named = {dependency.get("taskType") for dependency in dependencies}
    if RENDEZVOUS not in named and not leads_to(tasks, RENDEZVOUS, WORKER):
        worker = worker | {"dependsOn": (*dependencies, {"taskType": RENDEZVOUS, "phase": "Running"})}
    return tasks | {RENDEZVOUS: store, WORKER: worker}
