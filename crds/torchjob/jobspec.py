"""What a user asks for with a TorchJob.

One rule: every field is bounded, or the CEL rules over it exceed the API server's cost budget.
"""

import hashlib
from functools import cached_property
from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field

from crds.model import ClassName, Name, Written
from crds.resources.amounts import Amounts
from crds.torchjob import claims, demand, processes, size_limits, stages
from crds.torchjob.processes import NprocPerNode
from crds.torchjob.stages import Stage
from crds.torchjob.tasks import MASTER, WORKER, Count, TaskSpec, TaskType, with_defaults

MAX_TASK_TYPES = size_limits.MOST_TASK_TYPES
MAX_PRIORITY = 1_000_000_000
"""As for PriorityClasses of users."""
Seconds = Annotated[int, Field(ge=0, le=2**31 - 1)]
MAX_BACKOFF_LIMIT = 1_000


def _most_restarts(given: Any) -> Any:
    """A larger limit, stored before there was a largest one, counts as the largest."""
    return min(given, MAX_BACKOFF_LIMIT) if type(given) is int else given


GangScheduler = Literal["", "none", "volcano", "koordinator", "coscheduling", "kubernetes"]
"""none: the pods are made once the pool has room for all of them, and bound one by one."""

Tasks = Annotated[dict[TaskType, TaskSpec], BeforeValidator(with_defaults)]


class SchedulingPolicy(Written):
    """Where and how a job waits, and who binds its pods."""

    queue: Name | None = None
    """The tenant queue; the job's namespace if absent."""
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    priority_class_name: ClassName = ""
    hold: bool = False
    """Wait without being in the order."""
    gang_scheduler: GangScheduler = ""
    """Who binds the job's pods all or none; the installation's setting if empty."""
    gang_queue: ClassName = ""
    """The gang scheduler's own queue, another thing than the tenant queue."""


class TorchElasticPolicy(Written):
    """How far the number of workers may change while the job runs."""

    num_min_replicas: Count | None = None
    num_max_replicas: Count | None = None
    nproc_per_node: NprocPerNode | None = None
    """Another name of spec.nprocPerNode. If both are given, they must not differ."""
    max_restarts: int = Field(default=0, ge=0, le=10_000)
    mode: Literal["Rendezvous", "InPlaceRestart"] = "Rendezvous"


class TorchJobSpec(Written):
    """A distributed PyTorch job."""

    torch_task_specs: Tasks = Field(min_length=1, max_length=MAX_TASK_TYPES)
    min_members: dict[TaskType, Count] = Field(default_factory=dict, max_length=MAX_TASK_TYPES)
    """How many pods of a task must run for the job to run; all of them if absent (`members`)."""
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    torch_elastic_policy: TorchElasticPolicy | None = None
    nproc_per_node: NprocPerNode | None = None
    """How many processes torchrun starts in each pod: a number from 1 to 1024, or gpu, which is the number of GPUs that
    the pod's main container asks for. If absent, the GPUs of the main container, or 1 if it asks for none. The variable
    PET_NPROC_PER_NODE says it to torchrun."""
    restart_scope: Literal["Task", "Job"] | None = None
    """What a failed pod takes with it: the whole job, or only its replacement follows (`scope`)."""
    backoff_limit: Annotated[int, BeforeValidator(_most_restarts)] = Field(default=6, ge=0, le=MAX_BACKOFF_LIMIT)
    """Restarts the job may take before it fails."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Seconds from its start after which the job fails."""
    ttl_seconds_after_finished: Seconds | None = None
    """Seconds after its end at which the job is deleted; never if absent."""
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    """Which pods are deleted when the job ends."""
    suspend: bool = False

    @cached_property
    def tasks(self) -> dict[str, TaskSpec]:
        """The tasks by type: Master first, then by name. The order ranks are given in."""
        return dict(sorted(self.torch_task_specs.items(), key=lambda item: (item[0] != MASTER, item[0])))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its tasks by what can exist at once."""
        return stages.of(self.tasks)

    @cached_property
    def charge(self) -> Amounts:
        """What the job takes from its queue's quota and the pool while admitted (`demand.job_charge`). ValueError for
        what is not a quantity; none in a TorchJob that was parsed."""
        return demand.job_charge(self)

    @cached_property
    def claims(self) -> str:
        """The first field that claims resources, which the charge does not count; empty if none does."""
        return claims.field(self)

    @cached_property
    def digest(self) -> str:
        """Of its templates: what is remembered of the pods that were made holds as long as they stay the same."""
        templates = {name: task.template for name, task in self.torch_task_specs.items()}
        return hashlib.sha256(orjson.dumps(templates, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def scope(self) -> Literal["Task", "Job"]:
        """What is restarted when a pod fails: one world is restarted whole, an elastic one goes on with the others."""
        return self.restart_scope or ("Task" if self.torch_elastic_policy else "Job")

    @cached_property
    def wants_port(self) -> bool:
        """Whether a rank 0 listens at a port of its node, of which the job then needs one of its own."""
        worlds = ([each for each in stage.tasks if not self.tasks[each].auxiliary] for stage in self.stages)
        leads = [self.tasks[world[0]] for world in worlds if world]
        return any(lead.template["spec"].get("hostNetwork") for lead in leads)

    @property
    def asked_processes(self) -> int | str | None:
        """How many processes torchrun starts in each pod, by either name of the field; None if the job does not say."""
        policy = self.torch_elastic_policy
        return self.nproc_per_node or (policy.nproc_per_node if policy is not None else None)

    def processes(self, task_type: str) -> int:
        """How many processes torchrun starts in each pod of a task."""
        return processes.in_pod(self.asked_processes, self.torch_task_specs[task_type].template["spec"])

    def members(self, task_type: str) -> int:
        """How many pods of a task must run for the job to run."""
        return self.min_members.get(task_type, self.torch_task_specs[task_type].num_tasks)

    def gang_members(self, task_type: str) -> int:
        """How many pods of a task are bound all or none: of an elastic job's workers the fewest there may be."""
        policy, count = self.torch_elastic_policy, self.torch_task_specs[task_type].num_tasks
        least = policy.num_min_replicas if policy is not None and task_type == WORKER else None
        return min(self.members(task_type), count, least or count)
