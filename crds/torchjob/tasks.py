"""A task of a TorchJob: a number of equal pods.

One rule: defaults that depend on the task type are applied when a job is parsed (`with_defaults`) and never stored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from crds.model import ClassName, StrictModel
from crds.resources import quantities, resource_names
from crds.torchjob import size_limits

MASTER, WORKER, AI_MASTER = "Master", "Worker", "AIMaster"
"""The task types with special defaults; any other name is also a task type."""
RENDEZVOUS = "Rendezvous"
"""The task with the store at which the workers of an elastic job meet."""
TASK_TYPE = r"^[A-Za-z][A-Za-z0-9]{0,19}$"
LONGEST_TASK_TYPE, MOST_TASKS = 20, 10_000

TaskType = Annotated[str, Field(max_length=LONGEST_TASK_TYPE, pattern=TASK_TYPE)]
Count = Annotated[int, Field(ge=1, le=MOST_TASKS)]
"""A number of pods."""
RestartPolicy = Literal["Always", "OnFailure", "ExitCode", "Never"]
TaskPhase = Literal["Running", "Succeeded"]

COUNTED_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")
"""The resources of a container that the schema of a template declares, so that rules can read them."""
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}


def _maybe(kind: str, **bounds: Any) -> dict[str, Any]:
    """Return the schema of a field that may be null, as in a pod; an object keeps its unknown fields."""
    extra = {"x-kubernetes-preserve-unknown-fields": True} if kind == "object" else {}
    return {"type": kind, "nullable": True, **extra, **bounds}


_QUANTITIES = _maybe("object", maxProperties=size_limits.MOST_RESOURCES)
# A rule in CEL reads an integer or a text. A number of CPUs may have a fraction without quotes, so it has no such rule.
_BYTES = {"x-kubernetes-int-or-string": True, "nullable": True, "maxLength": 64}
_CPUS = {
    "x-kubernetes-preserve-unknown-fields": True,
    "nullable": True,
    "pattern": resource_names.FEW_CPUS,
    "maximum": resource_names.MOST_CPUS,
}
_AMOUNTS = _QUANTITIES | {"properties": {"cpu": _CPUS, **dict.fromkeys(COUNTED_IN_BYTES, _BYTES)}}
_RESOURCES = _maybe("object", properties={"requests": _AMOUNTS, "limits": _AMOUNTS})
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
                "terminationGracePeriodSeconds": {"x-kubernetes-int-or-string": True, "nullable": True},
                "restartPolicy": {"x-kubernetes-int-or-string": True, "nullable": True},
            },
        },
    },
}
Template = Annotated[dict[str, Any], WithJsonSchema(_TEMPLATE_SCHEMA)]
"""A PodTemplateSpec, opaque except for the fields that `crds.torchjob.template` checks."""


def _check_memory(value: Any) -> Any:
    quantities.parse("memory", value)
    return value


Memory = Annotated[
    str | int,
    PlainValidator(_check_memory),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "minimum": 0, "maxLength": 64, "pattern": quantities.PATTERN}),
]
"""A quantity of memory, as in 64Gi."""

RESTART_POLICIES: dict[str, RestartPolicy] = {MASTER: "ExitCode", WORKER: "OnFailure", AI_MASTER: "Never"}
"""The default restart policy by task type; all other types have that of a Worker. A task whose template names a policy
has that one instead."""

UPSTREAM = {MASTER: AI_MASTER, WORKER: MASTER}
"""The default upstream by task type, if the job has both tasks and no `dependsOn` field, not even an empty one."""


class Dependency(StrictModel):
    """A task that another task waits for, and the phase that it has to reach."""

    task_type: TaskType
    phase: TaskPhase = "Running"


class SpotTaskSpec(StrictModel):
    """The last pods of a task, which may run on cheaper, preemptible nodes."""

    num_spot_tasks: int = Field(default=0, ge=0, le=10_000)
    priority_class_name: ClassName = ""
    labels: dict[str, Annotated[str, Field(max_length=63)]] = Field(default_factory=dict, max_length=64)


class MemoryGrowth(StrictModel):
    """How the memory of a task's pods grows after one of them was killed because it had used up its memory."""

    factor_percent: int = Field(default=150, ge=101, le=1_000)
    """The memory of the next pods, in percent of the memory of the killed pod."""
    most: Memory = Field(alias="max")
    """The largest memory of the main container. It must not be less than the memory that the template asks for."""


class TaskSpec(StrictModel):
    """A number of pods with the same template."""

    num_tasks: Count = 1
    template: Template
    restart_policy: RestartPolicy = "OnFailure"
    depends_on: tuple[Dependency, ...] = Field(default=(), max_length=16, strict=False)
    spot_task_spec: SpotTaskSpec | None = None
    critical: bool = False
    auxiliary: bool = False
    """If true, the pods have no rank and do not count towards the world size or the gang. This is the default for an
    AIMaster."""
    memory_growth: MemoryGrowth | None = None
    """If set, the main containers of the task's next pods get more memory after one was killed for using up its
    memory. The increase is charged to the job before a pod has it."""


def with_defaults(declared: Any) -> Any:
    """Return the task map of a manifest with the defaults of each type; malformed tasks are left to the validation."""
    if not isinstance(declared, dict):
        return declared
    return {task_type: _with_default(task_type, task, declared) for task_type, task in declared.items()}


def _with_default(task_type: Any, task: Any, declared: dict[Any, Any]) -> Any:
    if not isinstance(task, dict):
        return task
    implied: dict[str, Any] = {"restartPolicy": template_policy(task) or RESTART_POLICIES.get(task_type, "OnFailure")}
    if task_type not in RESTART_POLICIES:
        return implied | task
    if task_type == AI_MASTER:
        implied["auxiliary"] = True
    upstream = UPSTREAM.get(task_type)
    if upstream in declared and not leads_to(declared, upstream, task_type):
        implied["dependsOn"] = ({"taskType": upstream, "phase": "Running"},)
    return implied | task


def template_policy(task: Mapping[str, Any]) -> str:
    """Return the restartPolicy that the template of a declared task names; empty if the template names none, or no
    valid one.
    """
    template = task.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
    return policy if policy in ("Always", "OnFailure", "Never") else ""


def leads_to(declared: dict[Any, Any], start: Any, end: str) -> bool:
    """Return whether a task waits, directly or indirectly, for another one; a default must not close a cycle."""
    ahead, visited = [start], set()
    while ahead:
        task_type = ahead.pop()
        if task_type == end:
            return True
        if task_type in visited:
            continue
        visited.add(task_type)
        ahead.extend(_upstream_names(declared, task_type))
    return False


def _upstream_names(declared: dict[Any, Any], task_type: Any) -> list[Any]:
    task = declared.get(task_type)
    if not isinstance(task, dict):
        return []
    if "dependsOn" not in task:
        return [UPSTREAM[task_type]] if UPSTREAM.get(task_type) in declared else []
    depends_on = task["dependsOn"]
    dependencies = depends_on if isinstance(depends_on, list | tuple) else ()
    names = (dependency.get("taskType") for dependency in dependencies if isinstance(dependency, dict))
    return [name for name in names if isinstance(name, str)]
