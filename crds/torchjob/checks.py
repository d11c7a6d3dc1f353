"""Validation rules that span several fields of a TorchJob.

One rule: every check here is also a CEL rule of the CRD (`crds.schema.cel_rules`), with the same message, with three
exceptions. CEL cannot find a dependency cycle, it cannot read the opaque pod template with a container's GPUs and
memory, and it cannot read the namespace of an object. A check that is newer than stored jobs is in `check_submitted`:
it holds where its fields are set or changed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crds import problems
from crds.errors import Problem
from crds.metadata import Metadata
from crds.resources import quantities, resource_names
from crds.torchjob import launched_processes, memory_growth, rendezvous_task
from crds.torchjob.jobspec import TorchElasticPolicy, TorchJobSpec
from crds.torchjob.tasks import AI_MASTER, MASTER, RENDEZVOUS, WORKER, MemoryGrowth, TaskSpec
from crds.torchjob.template import PodTemplate

TASKS = "spec.torchTaskSpecs"
MAX_POD_NAME = 63
"""Maximum length of a pod's name; it is also a host name and a service's name, which are DNS labels."""

ONE_MASTER = "a job has exactly one Master: set numTasks to 1"
SPELLING = "Master, Worker and AIMaster are spelled so"
TWINS = "task types must differ in more than case"
LONG_POD_NAME = f"pod names, <job>-<task type>-<index>, would exceed {MAX_POD_NAME} characters: shorten the job's name"
UNKNOWN_MEMBER = "every task type here must be one of spec.torchTaskSpecs"
MANY_MEMBERS = "must not be greater than the task's numTasks"
UNKNOWN_UPSTREAM = "taskType must be another task of spec.torchTaskSpecs"
ENDLESS_UPSTREAM = "a task with restartPolicy Always never succeeds: wait for phase Running"
MANY_SPOT_TASKS = "numSpotTasks must not be greater than numTasks"
NO_GPUS = (
    "the main container of task {} asks for no GPU: ask for one in its resources (nvidia.com/gpu), or write a number"
)
ELASTIC_RANGE = "numMinReplicas must not be greater than numMaxReplicas"
NO_WORKER = "an elastic job needs a task Worker: its policy bounds the number of workers"
WORKER_BOUNDS = "torchElasticPolicy bounds the number of workers"
NO_ROOM_FOR_STORE = (
    f"an elastic job has the task {RENDEZVOUS}, spelled so, beside at most {rendezvous_task.MOST_OTHERS} others"
)
NO_MAXIMUM = "autoscale Idle needs numMaxReplicas, the number of workers up to which the job may grow"
NOTHING_TO_SCALE = "autoscale Idle needs a numMaxReplicas that is greater than numMinReplicas"
SHORTEST_HANG = 60
SHORT_HANG = f"must be {SHORTEST_HANG} or more, or 0 for never"
NO_MEMORY = "the main container asks for no memory: ask for some in its resources, from which it can grow"
POD_MEMORY = "the pod itself asks for memory or limits it: only the memory of its containers can grow"
SMALL_MEMORY = "must not be less than the memory that the main container asks for"
MANY_LEAST_WORKERS = "must not be greater than spec.torchElasticPolicy.numMinReplicas"
MODEL_TWICE = "every model must stand here once: it has one folder in the containers"
FOREIGN_MODEL = "must begin with the namespace of the job: a claim has one folder for each namespace"
LONG_SHUTDOWN = "must be less than the terminationGracePeriodSeconds of the Worker's pods, which are killed then"


def invalid(field: str, value: object, message: str) -> Problem:
    """Return a problem in the form of the API server."""
    return Problem(field, f"Invalid value: {problems.quote(value)}: {message}")


def check(metadata: Metadata, spec: TorchJobSpec) -> Iterator[Problem]:
    """Yield the problems between the fields of a job; each field by itself is valid."""
    yield from _task_types(metadata, spec)
    for task_type, task in spec.torch_task_specs.items():
        yield from _task(task_type, task, spec)
    yield from _members(spec)
    yield from _elastic(spec)
    yield from _health(spec)
    yield from _processes(spec)
    yield from _models(metadata, spec)
    yield from cycles(spec.torch_task_specs)


def _models(metadata: Metadata, spec: TorchJobSpec) -> Iterator[Problem]:
    names = [each.model_name for each in spec.model_inputs]
    if len(set(names)) < len(names):
        yield invalid("spec.modelInputs", names, MODEL_TWICE)
    for index, each in enumerate(spec.model_inputs):
        if metadata.namespace and each.path.partition("/")[0] != metadata.namespace:
            yield invalid(f"spec.modelInputs[{index}].path", each.path, FOREIGN_MODEL)


def _task_types(metadata: Metadata, spec: TorchJobSpec) -> Iterator[Problem]:
    declared = spec.torch_task_specs
    spellings = {name.lower(): name for name in (MASTER, WORKER, AI_MASTER)}
    first_spellings: dict[str, str] = {}
    for task_type, task in declared.items():
        folded = task_type.lower()
        if spellings.get(folded, task_type) != task_type:
            yield invalid(f"{TASKS}.{task_type}", task_type, SPELLING)
        if first_spellings.setdefault(folded, task_type) != task_type:
            yield invalid(f"{TASKS}.{task_type}", task_type, TWINS)
        if len(pod_name(metadata.name, task_type, task.num_tasks - 1)) > MAX_POD_NAME:
            yield invalid(f"{TASKS}.{task_type}", task_type, LONG_POD_NAME)
    if MASTER in declared and declared[MASTER].num_tasks != 1:
        yield invalid(f"{TASKS}.{MASTER}.numTasks", declared[MASTER].num_tasks, ONE_MASTER)


def pod_name(job: str, task_type: str, index: int) -> str:
    """Return the name of a pod; it never changes, so creating the pod twice is harmless."""
    return f"{job}-{task_type.lower()}-{index}"


def _task(task_type: str, task: TaskSpec, spec: TorchJobSpec) -> Iterator[Problem]:
    at = f"{TASKS}.{task_type}"
    yield from problems.find(PodTemplate, task.template, f"{at}.template")
    for index, upstream in enumerate(task.depends_on):
        if upstream.task_type == task_type or upstream.task_type not in spec.torch_task_specs:
            yield invalid(f"{at}.dependsOn[{index}].taskType", upstream.task_type, UNKNOWN_UPSTREAM)
        elif upstream.phase == "Succeeded" and spec.torch_task_specs[upstream.task_type].restart_policy == "Always":
            yield invalid(f"{at}.dependsOn[{index}].phase", upstream.phase, ENDLESS_UPSTREAM)
    if task.spot_task_spec is not None and task.spot_task_spec.num_spot_tasks > task.num_tasks:
        yield invalid(f"{at}.spotTaskSpec.numSpotTasks", task.spot_task_spec.num_spot_tasks, MANY_SPOT_TASKS)
    if task.memory_growth is not None and not problems.find(PodTemplate, task.template):
        yield from _memory(f"{at}.memoryGrowth", task.memory_growth, task.template["spec"])


def _memory(at: str, growth: MemoryGrowth, pod_spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of a memoryGrowth beside a valid template."""
    asked = memory_growth.declared(pod_spec)
    if memory_growth.is_of_pod(pod_spec):
        yield invalid(at, {}, POD_MEMORY)
    elif not asked:
        yield invalid(at, {}, NO_MEMORY)
    elif memory_growth.most(growth) < asked:
        yield invalid(f"{at}.max", growth.most, f"{SMALL_MEMORY}, {quantities.format_amount('memory', asked)}")


def _members(spec: TorchJobSpec) -> Iterator[Problem]:
    for task_type, least in spec.min_members.items():
        task = spec.torch_task_specs.get(task_type)
        if task is None:
            yield invalid(f"spec.minMembers.{task_type}", task_type, UNKNOWN_MEMBER)
        elif least > task.num_tasks:
            yield invalid(f"spec.minMembers.{task_type}", least, MANY_MEMBERS)


def _elastic(spec: TorchJobSpec) -> Iterator[Problem]:
    policy = spec.torch_elastic_policy
    if policy is None:
        return
    least, most, shutdown = policy.num_min_replicas, policy.num_max_replicas, policy.shutdown_timeout_seconds
    if least is not None and most is not None and least > most:
        yield invalid("spec.torchElasticPolicy.numMinReplicas", least, ELASTIC_RANGE)
    if policy.autoscale == "Idle" and most is None:
        yield invalid("spec.torchElasticPolicy.autoscale", policy.autoscale, NO_MAXIMUM)
    elif policy.autoscale == "Idle" and least == most:
        yield invalid("spec.torchElasticPolicy.autoscale", policy.autoscale, NOTHING_TO_SCALE)
    if shutdown is not None and WORKER in spec.torch_task_specs and shutdown >= spec.grace(WORKER):
        message = f"{LONG_SHUTDOWN}: {shutdown} is not less than {spec.grace(WORKER)}"
        yield invalid("spec.torchElasticPolicy.shutdownTimeoutSeconds", shutdown, message)


def _health(spec: TorchJobSpec) -> Iterator[Problem]:
    timeout = spec.health.hang_timeout_seconds
    if 0 < timeout < SHORTEST_HANG:
        yield invalid("spec.health.hangTimeoutSeconds", timeout, SHORT_HANG)


def check_submitted(spec: TorchJobSpec) -> Iterator[Problem]:
    """Yield the problems of a spec that is submitted; a job that is stored already may have them, and runs."""
    for task_type, task in spec.torch_task_specs.items():
        yield from _unmeant(f"{TASKS}.{task_type}.template.spec", task.template["spec"])
    policy = spec.torch_elastic_policy
    if policy is None:
        return
    if WORKER not in spec.torch_task_specs:
        yield invalid("spec.torchElasticPolicy", {}, NO_WORKER)
        return
    if policy.mode == RENDEZVOUS and not spec.rendezvous:
        yield invalid(TASKS, {}, NO_ROOM_FOR_STORE)
    workers, least, members = spec.worker_count, policy.num_min_replicas, spec.min_members.get(WORKER, 0)
    if not policy.allows(workers):
        yield invalid(f"{TASKS}.{WORKER}.numTasks", workers, f"must be {size_words(policy)}: {WORKER_BOUNDS}")
    if least is not None and members > least:
        yield invalid(f"spec.minMembers.{WORKER}", members, MANY_LEAST_WORKERS)


def _unmeant(at: str, pod_spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the quantities of a valid pod spec that are most likely mistakes."""
    lists = ((f"{at}.{kind}", pod_spec.get(kind) or ()) for kind in ("initContainers", "containers"))
    containers = [(f"{place}[{index}]", each) for place, found in lists for index, each in enumerate(found)]
    for place, owner in [(at, pod_spec), *containers]:
        for kind, amounts in (owner.get("resources") or {}).items():
            for name, quantity in (amounts or {}).items() if kind in ("requests", "limits") else ():
                if unmeant := resource_names.unmeant(name, quantity):
                    yield invalid(f"{place}.resources.{kind}.{name}", quantity, unmeant)


def size_words(policy: TorchElasticPolicy) -> str:
    """Return the numbers of workers that a policy with a least or a largest number allows."""
    least, most = policy.num_min_replicas, policy.num_max_replicas
    if least is None:
        return f"at most {most}"
    words = f"{least} or more" if most is None else f"from {least} to {most}"
    return f"{words}, in steps of {policy.replica_step}" if policy.replica_step > 1 else words


def _processes(spec: TorchJobSpec) -> Iterator[Problem]:
    policy, nproc_per_node = spec.torch_elastic_policy, spec.nproc_per_node
    elastic_nproc = policy.nproc_per_node if policy is not None else None
    if nproc_per_node is not None and elastic_nproc is not None and nproc_per_node != elastic_nproc:
        yield invalid("spec.nprocPerNode", nproc_per_node, launched_processes.ONE_VALUE)
    elif spec.effective_nproc_per_node == launched_processes.GPUS:
        field = "spec.nprocPerNode" if nproc_per_node is not None else "spec.torchElasticPolicy.nprocPerNode"
        for task_type in _without_gpus(spec):
            yield invalid(field, launched_processes.GPUS, NO_GPUS.format(task_type))


def _without_gpus(spec: TorchJobSpec) -> Iterator[str]:
    """Yield the tasks with ranks whose main container requests no GPU.

    A task with an invalid template is skipped, since the template is another problem.
    """
    for task_type, task in spec.torch_task_specs.items():
        sound = not problems.find(PodTemplate, task.template)
        if sound and not task.auxiliary and not launched_processes.gpus(task.template["spec"]):
            yield task_type


def cycles(tasks: Mapping[str, TaskSpec]) -> Iterator[Problem]:
    """Yield the first cycle in the dependencies of the tasks, if there is a cycle."""
    upstreams = {
        name: [dependency.task_type for dependency in task.depends_on if dependency.task_type != name]
        for name, task in tasks.items()
    }
    circle = next(filter(None, (_circle(name, upstreams) for name in tasks)), None)
    if circle:
        yield Problem(TASKS, f"dependency cycle {' -> '.join(circle)}")


def _circle(start: str, upstreams: Mapping[str, list[str]]) -> list[str]:
    """Return the path from a task along its upstreams back to itself, or an empty list if there is no such path."""
    routes, visited = [[start]], {start}
    for route in routes:
        for upstream in upstreams.get(route[-1], ()):
            if upstream == start:
                return [*route, start]
            if upstream not in visited:
                visited.add(upstream)
                routes.append([*route, upstream])
    return []
