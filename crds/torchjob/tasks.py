"""One task of a TorchJob: so many equal pods.

One rule: what a task's type implies is applied when a job is parsed (`with_defaults`) and written nowhere.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from crds.model import ClassName, Written
from crds.torchjob import size_limits

MASTER, WORKER, AI_MASTER = "Master", "Worker", "AIMaster"
"""The task types with a meaning; any other name is a task type too."""
TASK_TYPE = r"^[A-Za-z][A-Za-z0-9]{0,19}$"
LONGEST_TASK_TYPE, MOST_TASKS = 20, 10_000

TaskType = Annotated[str, Field(max_length=LONGEST_TASK_TYPE, pattern=TASK_TYPE)]
Count = Annotated[int, Field(ge=1, le=MOST_TASKS)]
"""A number of pods."""
RestartPolicy = Literal["Always", "OnFailure", "ExitCode", "Never"]
TaskPhase = Literal["Running", "Succeeded"]

_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}


def _maybe(kind: str, **bounds: Any) -> dict[str, Any]:
    """A field that a manifest may set to null, as in a pod; of an object all fields are kept."""
    kept = {"x-kubernetes-preserve-unknown-fields": True} if kind == "object" else {}
    return {"type": kind, "nullable": True, **kept, **bounds}


_QUANTITIES = _maybe("object", maxProperties=size_limits.MOST_RESOURCES)
_RESOURCES = _maybe("object", properties={"requests": _QUANTITIES, "limits": _QUANTITIES})
_CONTAINER = {
    "type": "object",
    "required": ["name"],
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {"name": {"type": "string", "minLength": 1}, "resources": _RESOURCES},
}
_TEMPLATE_SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "metadata": {"type": "object", "properties": {"labels": _STRINGS, "annotations": _STRINGS}},
        "spec": {
            "type": "object",
            "required": ["containers"],
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": size_limits.MOST_CONTAINERS,
                    "items": _CONTAINER,
                },
                "initContainers": _maybe("array", maxItems=size_limits.MOST_CONTAINERS, items=_CONTAINER),
                "resources": _RESOURCES,
                "overhead": _QUANTITIES,
            },
        },
    },
}
Template = Annotated[dict[str, Any], WithJsonSchema(_TEMPLATE_SCHEMA)]
"""A PodTemplateSpec, opaque but for what `crds.torchjob.template` asks of it."""

RESTART_POLICIES: dict[str, RestartPolicy] = {MASTER: "ExitCode", WORKER: "OnFailure", AI_MASTER: "Never"}
"""What a task does about a failed pod unless it says so; other types are like a Worker."""

UPSTREAM = {MASTER: AI_MASTER, WORKER: MASTER}
"""Which task a task waits for to run, where the job has both and `dependsOn` is not given (an empty one is)."""


class Dependency(Written):
    """Start only when another task has come so far."""

    task_type: TaskType
    phase: TaskPhase = "Running"


class SpotTaskSpec(Written):
    """The last pods of a task may run on cheaper, preemptible nodes."""

    num_spot_tasks: int = Field(default=0, ge=0, le=10_000)
    priority_class_name: ClassName = ""
    labels: dict[str, Annotated[str, Field(max_length=63)]] = Field(default_factory=dict, max_length=64)


class TaskSpec(Written):
    """So many pods of one template."""

    num_tasks: Count = 1
    template: Template
    restart_policy: RestartPolicy = "OnFailure"
    depends_on: tuple[Dependency, ...] = Field(default=(), max_length=16, strict=False)
    spot_task_spec: SpotTaskSpec | None = None
    critical: bool = False
    auxiliary: bool = False
    """Beside the training: without a rank, outside the world size and the gang. An AIMaster is."""


def with_defaults(declared: Any) -> Any:
    """The task map of a manifest with what each type implies; anything malformed is left for validation to name."""
    if not isinstance(declared, dict):
        return declared
    return {task_type: _with_default(task_type, task, declared) for task_type, task in declared.items()}


def _with_default(task_type: Any, task: Any, declared: dict[Any, Any]) -> Any:
    if not isinstance(task, dict) or task_type not in RESTART_POLICIES:
        return task
    implied: dict[str, Any] = {"restartPolicy": RESTART_POLICIES[task_type]}
    if task_type == AI_MASTER:
        implied["auxiliary"] = True
    upstream = UPSTREAM.get(task_type)
    if upstream in declared and not _leads_to(declared, upstream, task_type):
        implied["dependsOn"] = ({"taskType": upstream, "phase": "Running"},)
    return implied | task


def _leads_to(declared: dict[Any, Any], start: Any, end: str) -> bool:
    """Whether a task waits, near or far, for another one, as far as the manifest says so: no circle is implied."""
    ahead, seen = [start], set()
    while ahead:
        task_type = ahead.pop()
        if task_type == end:
            return True
        if task_type in seen:
            continue
        seen.add(task_type)
        ahead.extend(_named_upstreams(declared, task_type))
    return False


def _named_upstreams(declared: dict[Any, Any], task_type: Any) -> list[Any]:
    task = declared.get(task_type)
    if not isinstance(task, dict):
        return []
    if "dependsOn" not in task:
        return [UPSTREAM[task_type]] if UPSTREAM.get(task_type) in declared else []
    found = task["dependsOn"]
    each = found if isinstance(found, list | tuple) else ()
    names = (one.get("taskType") for one in each if isinstance(one, dict))
    return [name for name in names if isinstance(name, str)]
