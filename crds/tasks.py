"""One task of a TorchJob: so many equal pods.

One rule: what a task's type implies is applied when a job is parsed (`with_defaults`) and written nowhere.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from crds.model import ClassName, Written

MASTER, WORKER, AI_MASTER = "Master", "Worker", "AIMaster"
"""The task types with a meaning; any other name is a task type too."""
TASK_TYPE = r"^[A-Za-z][A-Za-z0-9]{0,19}$"

TaskType = Annotated[str, Field(max_length=20, pattern=TASK_TYPE)]
Count = Annotated[int, Field(ge=1, le=10_000)]
"""A number of pods."""
RestartPolicy = Literal["Always", "OnFailure", "ExitCode", "Never"]
TaskPhase = Literal["Running", "Succeeded"]

_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
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
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "x-kubernetes-preserve-unknown-fields": True,
                        "properties": {"name": {"type": "string", "minLength": 1}},
                    },
                }
            },
        },
    },
}
Template = Annotated[dict[str, Any], WithJsonSchema(_TEMPLATE_SCHEMA)]
"""A PodTemplateSpec, opaque but for what `crds.template` asks of it."""

RESTART_POLICIES: dict[str, RestartPolicy] = {MASTER: "ExitCode", WORKER: "OnFailure", AI_MASTER: "Never"}
"""What a task does about a failed pod unless it says so; other types are like a Worker."""


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


def with_defaults(declared: Any) -> Any:
    """The task map of a manifest with what each type implies; anything malformed is left for validation to name."""
    if not isinstance(declared, dict):
        return declared
    return {task_type: _with_default(task_type, task) for task_type, task in declared.items()}


def _with_default(task_type: Any, task: Any) -> Any:
    if not isinstance(task, dict) or task_type not in RESTART_POLICIES:
        return task
    return {"restartPolicy": RESTART_POLICIES[task_type]} | task
