"""The environment variables of a training process, right for both `python train.py` and `torchrun train.py`.

One rule: a variable that the user sets wins and stands once. Variables of torchq stand first, so that the user's values
may refer to them: $(RANK).

torchrun reads PET_<OPTION> as the default of each of its options (torch.distributed.argparse_util). A plain `torchrun
train.py` therefore joins the other pods by static rendezvous. One pod is one node of torchrun. WORLD_SIZE and RANK
count pods; torchrun replaces them by its own values for the PET_NPROC_PER_NODE processes that it starts in each pod.
Launchers that start processes themselves (Lightning) find their pod by NODE_RANK. LOCAL_RANK is not set: with it,
launchers would take a process for one that was started already.

In the worlds of an elastic job in the mode InPlaceRestart, ranks and world size are annotations of the pods, because
they change with the number of workers. A container reads them whenever it starts.

The pods of any other elastic job meet at its rendezvous store instead. torchrun then chooses the ranks, each time when
pods join or are lost, so torchq sets neither ranks nor an address of rank 0. Variables that do not depend on the number
of workers are the same in all pods, because each torchrun keeps its own copy of the variables as long as it runs.
"""

from collections.abc import Mapping
from typing import Any

from crds import labels
from crds.torchjob.jobspec import TorchElasticPolicy
from crds.torchjob.tasks import MOST_TASKS
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods.task_members import PodMember
from reconcilers.settings import ReportAccess

Variables = Mapping[str, str | Mapping[str, Any]]
"""Variables by name. A value that is not text is the variable's `valueFrom`."""
BASE = {"PYTHONUNBUFFERED": "1"}
"""The variables of every container."""
FEWEST_WORKERS = 1
"""The least number of workers of an elastic job that gives no other number."""


def static_variables(member: PodMember, address: str, port: int, processes: int) -> Variables:
    """Return the variables of one pod. `address` and `port` are the address and port of the world's rank 0, `processes`
    is the number of processes that torchrun starts in the pod. A pod outside of the world gets no rank.
    """
    if member.rank is None:
        return {**BASE, **({"MASTER_ADDR": address, "MASTER_PORT": str(port)} if member.lead else {})}
    return _ranked(address, port, processes, str(member.rank), str(member.world_size))


def _ranked(
    address: str, port: int, processes: int, rank: str | Mapping[str, Any], size: str | Mapping[str, Any]
) -> Variables:
    return {
        **BASE,
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": rank,
        "WORLD_SIZE": size,
        "PET_NNODES": size,
        "NODE_RANK": rank,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": str(processes),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }


def world_variables(address: str, port: int, processes: int, policy: TorchElasticPolicy) -> Variables:
    """Return the variables of a pod whose rank and world size are its annotations."""
    world = _ranked(address, port, processes, _annotation(labels.RANK), _annotation(labels.WORLD_SIZE))
    restarts = {} if policy.max_restarts is None else {"PET_MAX_RESTARTS": str(policy.max_restarts)}
    return {**world, "PET_RDZV_ID": _annotation(labels.RENDEZVOUS_ID), **restarts}


def rendezvous_variables(
    policy: TorchElasticPolicy, endpoint: str, others: int, processes: int, *, on_loopback: bool
) -> Variables:
    """Return the variables of a pod that meets others at the rendezvous store, which has the address `endpoint`.

    `others` is the number of pods that meet there beside the workers.
    """
    least, most = policy.num_min_replicas or FEWEST_WORKERS, policy.num_max_replicas or MOST_TASKS
    return {
        **BASE,
        "PET_NNODES": f"{least + others}:{most + others}",
        "PET_NPROC_PER_NODE": str(processes),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": endpoint,
        # The variable is read whenever the container starts, so a restart in place begins with a new id.
        "PET_RDZV_ID": _annotation(labels.RENDEZVOUS_ID),
        "PET_RDZV_CONF": _rendezvous_settings(policy),
        "PET_MAX_RESTARTS": str(policy.effective_max_restarts),
        "PET_LOCAL_ADDR": "127.0.0.1" if on_loopback else _field("status.podIP"),
        # Otherwise workers that join wait for an address that a running rank 0 does not write again, and all fail.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _rendezvous_settings(policy: TorchElasticPolicy) -> str:
    settings = {
        "is_host": 0,
        "join_timeout": policy.join_timeout_seconds,
        "last_call_timeout": policy.last_call_seconds,
        "keep_alive_interval": 2,
        "keep_alive_max_attempt": 3,
        "read_timeout": 60,
    }
    return ",".join(f"{name}={value}" for name, value in settings.items())


def elastic_variables(policy: TorchElasticPolicy) -> Variables:
    """Return the bounds of an elastic job, so that a script can keep its global batch; without a largest number of
    workers there is no upper bound."""
    most = policy.num_max_replicas
    least = {"TORCHQ_MIN_WORKERS": str(policy.num_min_replicas or FEWEST_WORKERS)}
    return least if most is None else {**least, "TORCHQ_MAX_WORKERS": str(most)}


def shutdown_variables(job: TorchJob, task_type: str) -> Variables:
    """Return how long torchrun lets its processes end before it kills them. Without this variable the
    time is 30 s, whatever the grace of the pod.
    """
    return {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(job.spec.shutdown_timeout(task_type))}


def report_variables(job: TorchJob, pod: str, access: ReportAccess | None) -> Variables:
    """Return the variables that a pod needs to report about its training; nothing if pods do not report.

    The token is in the spec of the pod and not in a Secret. The token allows no more than to forge the reports of
    this job, and who reads the pods of a namespace mostly reads its Secrets, too. A Secret would be one more object of
    each job, and workers would need the right to write Secrets in every namespace, which is worth more than all tokens.
    """
    if access is None:
        return {}
    return {
        "TORCHQ_REPORT_URL": access.url,
        "TORCHQ_REPORT_TOKEN": access.token(job.metadata.uid),
        "TORCHQ_JOB": f"{job.metadata.namespace}/{job.metadata.name}",
        "TORCHQ_POD": pod,
    }


def rendezvous_id(job: TorchJob) -> str:
    """Return the name under which the pods meet: another name after each restart of the whole job."""
    return f"{job.metadata.uid}-{job.status.restart_generation}"


def _annotation(name: str) -> Mapping[str, Any]:
    return _field(f"metadata.annotations['{name}']")


def _field(path: str) -> Mapping[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


PLACED = dict.fromkeys(("RANK", "NODE_RANK", "PET_NODE_RANK"), _annotation(labels.RANK))
"""The variables of a pod whose rank follows from its node, and is written before its containers start."""


def add_variables(container: dict[str, Any], env: Variables) -> None:
    """Add the variables to a container of a fresh copy of a template."""
    users = container.get("env") or []
    user_names = {entry["name"] for entry in users}
    ours = (
        {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": dict(value)}
        for name, value in env.items()
        if name not in user_names
    )
    container["env"] = [*ours, *users]
