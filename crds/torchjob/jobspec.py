"""The spec of a TorchJob.

One rule: every field has a maximum size; without it, the CEL rules exceed the cost budget of the API server.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field, model_validator

from crds.model import ClassName, LabelName, Name, StrictModel
from crds.resources.amounts import Amounts
from crds.torchjob import claims, demand, launched_processes, rendezvous_task, size_limits, stages, worker_range
from crds.torchjob.demand import FirstPods, HostPort
from crds.torchjob.launched_processes import NprocPerNode
from crds.torchjob.stages import Stage
from crds.torchjob.tasks import MASTER, RENDEZVOUS, WORKER, Count, TaskSpec, TaskType, with_defaults
from crds.torchjob.worker_range import WorkerRange
from crds.trained_models import MOST_MODELS, ClaimName, ModelInput, ModelOutput

MAX_TASK_TYPES = size_limits.MOST_TASK_TYPES
MAX_PRIORITY = 1_000_000_000
"""The same limit as for PriorityClasses that users create."""
Seconds = Annotated[int, Field(ge=0, le=2**31 - 1)]
MAX_BACKOFF_LIMIT = 1_000
DEFAULT_MAX_RESTARTS = 10
DEFAULT_GRACE = 30
"""The grace period in seconds of a pod whose template has none, as in Kubernetes."""
SHUTDOWN_MARGIN = 5
"""The number of seconds between the end of a pod's processes and the end of its grace period."""


def _most_restarts(limit: Any) -> Any:
    """Return the backoff limit, reduced to the maximum; older versions accepted larger limits."""
    return min(limit, MAX_BACKOFF_LIMIT) if type(limit) is int else limit


GangScheduler = Literal["", "none", "volcano", "koordinator", "coscheduling", "kubernetes"]
"""A gang scheduler. With `none`, the pods are created once the pool has room for all of them, and bound one by one."""

Tasks = Annotated[dict[TaskType, TaskSpec], BeforeValidator(with_defaults)]


class Topology(StrictModel):
    """The nodes that the job's pods share, by labels of nodes: levels in the setting topology_labels, such as racks."""

    required: LabelName = ""
    """The label of which all nodes of the job have one value. The job waits until the nodes with one value hold all
    pods that start together."""
    preferred: LabelName = ""
    """The label of which the nodes of the job have as few values as can be. It never makes the job wait."""


NO_TOPOLOGY = Topology()


class SchedulingPolicy(StrictModel):
    """The job's queue and priority, and the scheduler of its pods."""

    queue: Name | None = None
    """The tenant queue; the default is the queue with the name of the job's namespace."""
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    priority_class_name: ClassName = ""
    hold: bool = False
    """If true, the job waits and is not considered for admission."""
    gang_scheduler: GangScheduler = ""
    """The scheduler that binds the job's pods all or none; if empty, the installation's setting applies."""
    gang_queue: ClassName = ""
    """The queue of the gang scheduler; it is independent of the tenant queue."""
    topology: Topology = NO_TOPOLOGY
    """The nodes that the job's pods share, such as those of one rack."""
    checkpoint_seconds: Seconds = 0
    """The number of seconds that the job has to save a checkpoint before workers are removed; 0: it is not asked."""


class TorchElasticPolicy(StrictModel):
    """The bounds within which the number of workers may change while the job runs."""

    num_min_replicas: Count | None = None
    """The least number of workers with which the job is admitted and keeps running; if absent, it is admitted with all
    workers that it requests."""
    num_max_replicas: Count | None = None
    """The largest number of workers that the job may request."""
    replica_step: Count = 1
    """The step between two sizes: the job has numMinReplicas workers and a multiple of the step."""
    nproc_per_node: NprocPerNode | None = None
    """Another name of spec.nprocPerNode. If both are set, they must be equal."""
    mode: Literal["Rendezvous", "InPlaceRestart"] = "Rendezvous"
    """How the running workers take up a new number of workers: torchrun agrees on it at the job's rendezvous store, or
    every container is restarted in place with new ranks."""
    max_restarts: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """The number of times that torchrun restarts the processes of a pod after a failure; 10 if absent."""
    join_timeout_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] = 600
    """The number of seconds after which added workers that do not run are removed."""
    shutdown_timeout_seconds: Seconds | None = None
    """The number of seconds that the processes of a pod have to end after they were told to. It must be less than the
    pod's grace period, and is 5 less if absent."""
    last_call_seconds: Annotated[int, Field(ge=0, le=3_600)] = 3
    """The number of seconds that workers at the rendezvous wait for more once there are enough."""
    autoscale: Literal["Off", "Idle"] = "Off"
    """With Idle, the job gets further workers, up to numMaxReplicas, while nobody else can use the room, and gives
    them back when a waiting job is entitled to it. In YAML, write "Off" in quotes."""
    resize_every_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """The least number of seconds between two changes of the number of workers that autoscaling makes; a job gives
    workers back at any time."""
    min_gain_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """If the samples per second and worker fall by more than this after workers were added, the workers are removed
    again; 0: this is not considered."""

    def allows(self, workers: int) -> bool:
        """Return whether the job may request a number of workers."""
        least, most = self.num_min_replicas, self.num_max_replicas
        if least is not None and (workers < least or (workers - least) % self.replica_step):
            return False
        return most is None or workers <= most

    @property
    def effective_max_restarts(self) -> int:
        """The number of times that torchrun restarts the processes of a pod after a failure."""
        return DEFAULT_MAX_RESTARTS if self.max_restarts is None else self.max_restarts


class Health(StrictModel):
    """What happens to a job that reports its steps and makes none."""

    hang_timeout_seconds: Seconds = 0
    """The number of seconds without a step of any pod after which the job counts as hanging: 60 or more, or 0 for
    never. A job that has not reported a step never hangs."""
    on_hang: Literal["Report", "Restart"] = "Report"
    """Whether a job that hangs is only reported, or also restarted."""
    first_step_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] = 7200
    """The number of seconds that the job has for its first step after a start or a restart."""


class Outputs(StrictModel):
    """Where the files stay that the job writes."""

    claim_name: ClaimName
    """The PersistentVolumeClaim with a folder of the job, which all its pods see at /torchq/output. It has to allow
    access from all nodes that run pods of the job."""


class TorchJobSpec(StrictModel):
    """A distributed PyTorch job."""

    torch_task_specs: Tasks = Field(min_length=1, max_length=MAX_TASK_TYPES)
    min_members: dict[TaskType, Count] = Field(default_factory=dict, max_length=MAX_TASK_TYPES)
    """For each task type, the number of pods that must run for the job to count as running; all of them if absent."""
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    torch_elastic_policy: TorchElasticPolicy | None = None
    health: Health = Health()
    nproc_per_node: NprocPerNode | None = None
    """The number of processes that torchrun starts in each pod: a number from 1 to 1024, or gpu for the number of GPUs
    that the pod's main container requests. If absent, it is the number of these GPUs, or 1 if the container requests
    none. torchrun reads it from the variable PET_NPROC_PER_NODE."""
    success_policy: Literal["AllTasks", "Master"] = "AllTasks"
    """When the job has succeeded. AllTasks: all pods of every task have ended with 0, apart from auxiliary tasks, tasks
    that are always restarted, and the rendezvous store. Master: its Master has ended with 0, and the tasks that start
    after that; without a Master it is the same as AllTasks."""
    restart_scope: Literal["Task", "Job"] | None = None
    """The extent of a restart after a pod has failed: Job restarts all pods, Task replaces only the failed pod. The
    default is Task for an elastic job in the mode Rendezvous and Job for any other."""
    backoff_limit: Annotated[int, BeforeValidator(_most_restarts)] = Field(default=6, ge=0, le=MAX_BACKOFF_LIMIT)
    """The number of restarts before the job fails."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """The number of seconds after its start at which the job fails."""
    ttl_seconds_after_finished: Seconds | None = None
    """The number of seconds after its end at which the job is deleted; if absent, the job is not deleted."""
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    """The pods that are deleted when the job ends."""
    evictions: Literal["Allow", "Refuse"] = "Allow"
    """Whether pods of the job may be evicted, as `kubectl drain` does. Refuse: a PodDisruptionBudget of the job refuses
    evictions, and its pods stay on cordoned nodes. Nodes that are about to go away lose their pods in any case."""
    suspend: bool = False
    cancel: bool = False
    """If true, the job ends for good: its pods are ended, and it fails with the reason Cancelled. It cannot be set to
    false again."""
    outputs: Outputs | None = None
    """Where the files stay that the job writes; the variable TORCHQ_OUTPUT of its containers names the folder."""
    model_output: ModelOutput | None = None
    """The model that the job trains, in the folder of TORCHQ_MODEL_PATH; on Kubernetes the job also needs outputs."""
    model_inputs: Annotated[tuple[ModelInput, ...], Field(max_length=MOST_MODELS, strict=False)] = ()
    """The models that the job reads."""

    @model_validator(mode="before")
    @classmethod
    def _with_rendezvous(cls, fields: Any) -> Any:
        return rendezvous_task.with_rendezvous(fields)

    @cached_property
    def tasks(self) -> dict[str, TaskSpec]:
        """The tasks by type, in the order in which ranks are assigned: Master first, then by name."""
        return dict(sorted(self.torch_task_specs.items(), key=lambda item: (item[0] != MASTER, item[0])))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The tasks, grouped by which of them can exist at once."""
        return stages.group_tasks(self.tasks)

    @cached_property
    def charge(self) -> Amounts:
        """The amounts that the admitted job takes from quota and pool with all workers that it requests.

        Raise ValueError for a text that is not a quantity; a TorchJob that was parsed has no such text.
        """
        return self.charge_of(self.worker_count)

    @cached_property
    def least_charge(self) -> Amounts:
        """The charge with the least number of workers with which the job can be admitted."""
        return self.charge_of(self.least_workers)

    @cached_property
    def beyond_gangs(self) -> Amounts:
        """The requests of the members without which the job's gangs may begin (`minMembers`)."""
        return demand.beyond_gangs(self, demand.shares(self.tasks))

    @cached_property
    def worker_share(self) -> Amounts:
        """The amounts that one further worker adds to the charge; nothing for a job without workers."""
        return demand.worker_share(self)

    @cached_property
    def first_pods(self) -> tuple[FirstPods, ...]:
        """The pods that start together with the least number of workers."""
        return demand.stage_pods(self, self.stages[0], demand.shares(self.tasks))

    def charge_of(self, workers: int, measured: Mapping[str, Amounts] = demand.NO_TASKS) -> Amounts:
        """Return the charge with a number of workers; `measured` is the parameter of `demand.job_charge`."""
        return demand.charge_of(self, workers, measured)

    @cached_property
    def claims(self) -> str:
        """The path of the first field with resource claims, whose devices a worker counts; empty if there is none."""
        return claims.field(self.tasks)

    @cached_property
    def digest(self) -> str:
        """A digest of the declared templates: measurements of existing pods are valid as long as it stays the same."""
        implied = {RENDEZVOUS} if self.has_implied_rendezvous else set()
        templates = {name: task.template for name, task in self.torch_task_specs.items() if name not in implied}
        return hashlib.sha256(orjson.dumps(templates, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def scope(self) -> Literal["Task", "Job"]:
        """The extent of a restart after a pod has failed: all pods, unless the job says otherwise, or is elastic and
        the other pods can continue without the pod."""
        is_static = self.torch_elastic_policy is None or self.has_static_worlds
        return self.restart_scope or ("Job" if is_static else "Task")

    @cached_property
    def wants_port(self) -> bool:
        """Whether a rank 0 or the rendezvous store listens at a port of its node, so that the job needs a port that no
        other job uses."""
        return any(self.tasks[lead].template["spec"].get("hostNetwork") for lead in self._leads)

    @cached_property
    def chosen_ports(self) -> frozenset[HostPort]:
        """The ports of a node that the job chooses itself: no other job can use them where all pods share a machine."""
        tasks, leads = self.tasks.items(), self._leads
        ports = (demand.chosen_ports(task.template["spec"], leads=name in leads) for name, task in tasks)
        return frozenset().union(*ports)

    @property
    def _leads(self) -> list[str]:
        return [lead for stage in self.stages if (lead := self._lead(stage))]

    def _lead(self, stage: Stage) -> str | None:
        """Return the task of the pod to which the pods of a stage connect; None if the pods connect to none."""
        if self.rendezvous and WORKER in stage.tasks:
            return RENDEZVOUS
        return next((name for name in stage.tasks if not self.tasks[name].auxiliary), None)

    @property
    def effective_nproc_per_node(self) -> int | str | None:
        """The value of `nprocPerNode` under either of its names; None if the job has neither."""
        policy = self.torch_elastic_policy
        return self.nproc_per_node or (policy.nproc_per_node if policy is not None else None)

    @property
    def worker_count(self) -> int:
        """The number of workers that the job requests; 0 without a task of that type."""
        worker = self.torch_task_specs.get(WORKER)
        return 0 if worker is None else worker.num_tasks

    @property
    def worker_range(self) -> WorkerRange | None:
        """The numbers of workers with which the job can be admitted; None if the job is admitted with all of its
        workers or none.
        """
        policy = self.torch_elastic_policy
        if policy is None:
            return worker_range.of_members(self.worker_count, self.min_members.get(WORKER))
        return worker_range.of_policy(self.worker_count, policy.num_min_replicas, policy.replica_step)

    @property
    def least_workers(self) -> int:
        """The least number of workers with which the job can be admitted."""
        return self.worker_count if self.worker_range is None else self.worker_range.least

    @property
    def is_elastic(self) -> bool:
        """Whether the number of workers may change while the job is admitted."""
        return self.torch_elastic_policy is not None and WORKER in self.torch_task_specs

    @property
    def has_static_worlds(self) -> bool:
        """Whether a new number of workers restarts every container with new ranks."""
        policy = self.torch_elastic_policy
        return policy is not None and policy.mode == "InPlaceRestart" and WORKER in self.torch_task_specs

    def grace(self, task_type: str) -> int:
        """Return the number of seconds that a pod of a task has to end, by its template."""
        task = self.torch_task_specs.get(task_type)
        grace = task.template["spec"].get("terminationGracePeriodSeconds") if task is not None else None
        return grace if type(grace) is int else DEFAULT_GRACE

    def shutdown_timeout(self, task_type: str) -> int:
        """Return the number of seconds that torchrun gives the processes of a pod to end, before the pod is killed:
        that is, the grace of the pod without the margin, but at least half of the grace. A limit of the elastic policy
        shortens this time.
        """
        grace, policy = self.grace(task_type), self.torch_elastic_policy
        limit = policy.shutdown_timeout_seconds if policy is not None else None
        if limit is not None and limit < grace:
            return limit
        return max(grace - SHUTDOWN_MARGIN, grace // 2)

    @property
    def rendezvous(self) -> bool:
        """Whether the workers meet at a rendezvous store of the job, which is its task Rendezvous."""
        policy, tasks = self.torch_elastic_policy, self.torch_task_specs
        return policy is not None and policy.mode == "Rendezvous" and WORKER in tasks and RENDEZVOUS in tasks

    @property
    def has_implied_rendezvous(self) -> bool:
        """Whether the task Rendezvous is implied, not declared."""
        if not self.rendezvous:
            return False
        store, worker = self.torch_task_specs[RENDEZVOUS], self.torch_task_specs[WORKER]
        return store.template == rendezvous_task.template(worker.template)

    def processes(self, task_type: str) -> int:
        """Return the number of processes that torchrun starts in each pod of a task."""
        return launched_processes.per_pod(
            self.effective_nproc_per_node, self.torch_task_specs[task_type].template["spec"]
        )

    def members(self, task_type: str) -> int:
        """Return the number of pods of a task that must run for the job to count as running.

        For workers, the number is by default the least number with which the job is admitted.
        """
        policy, count = self.torch_elastic_policy, self.torch_task_specs[task_type].num_tasks
        least = policy.num_min_replicas if policy is not None and task_type == WORKER else None
        return min(self.min_members.get(task_type, least or count), count)

    def gang_members(self, task_type: str) -> int:
        """Return the number of pods of a task that are bound all or none: for elastic workers, the minimum number."""
        policy, count = self.torch_elastic_policy, self.torch_task_specs[task_type].num_tasks
        least = policy.num_min_replicas if policy is not None and task_type == WORKER else None
        return min(self.members(task_type), count, least or count)
