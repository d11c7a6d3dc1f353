"""The restart agent of a pod: the sidecar with which Kubernetes restarts all containers of the pod on request.

One rule: pure, over opaque pod specs. The agent watches one annotation, and does nothing else.

A node restarts all containers of a pod when a container exits with a code for which its rule says
RestartAllContainers (Kubernetes 1.36). The agent exits with that code when the annotation changes. The restart agent is
the first init container, so the main container alone decides when the pod has ended, and its exit code is that of the
pod. The pod keeps its sandbox, address, volumes and devices. The other init containers run again.

The agent runs the main container's image, which needs `sh` and `sleep`. The requests of the agent are added to the
requests of the pod. The limits equal the requests, so that a pod keeps its quality of service and passes a quota of
limits.
"""

from collections.abc import Mapping
from typing import Any

from crds import labels
from crds.api_resources import PODS
from crds.torchjob import memory_growth
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from reconcilers.views import containers
from reconcilers.views.containers import Requests

DRIVER = "kubernetes"
"""The driver in `status.inPlace` for which pods have the agent."""
FOLDER = "/etc/torchq-restart"
VARIABLE = "TORCHQ_VOLUME_TORCHQ_RESTART"
"""The variable with the folder in which the annotation is."""
FILE = "containers"
EXIT_CODE = 88
"""The exit code for which all containers are restarted. Neither a shell nor a container runtime has it for an error."""
SCRIPT = (
    'exec 2>/dev/null; trap "exit 0" TERM; '
    f'read -r before <"${VARIABLE}/{FILE}"; now=$before; '
    'while [ "$now" = "$before" ]; do '
    f'sleep 0.5 & wait $! || exit 127; read -r now <"${VARIABLE}/{FILE}"; '
    f"done; exit {EXIT_CODE}"
)
"""The script of the agent. It traps SIGTERM, which a shell ignores as the first process of a container, and waits in
the background for each `sleep`, so that the trap runs at once."""
AMOUNTS = {"cpu": "1m", "memory": "16Mi"}
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [EXIT_CODE]}}


def add_agent(spec: dict[str, Any]) -> None:
    """Add the agent to a fresh copy of a template, before all other init containers."""
    containers.add_helper(
        spec,
        FOLDER,
        FILE,
        labels.RESTART_CONTAINERS,
        name=containers.RESTART_AGENT,
        command=["sh", "-c", SCRIPT],
        # Images for GPUs ask their runtime for all devices of the node, unless a container says otherwise.
        env=[{"name": VARIABLE, "value": FOLDER}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        resources={"requests": AMOUNTS, "limits": AMOUNTS},
        restartPolicy="Always",
        restartPolicyRules=[RULE],
    )


def is_chosen(status: TorchJobStatus) -> bool:
    """Return whether the next pods of a job have agents."""
    return status.in_place is not None and status.in_place.driver == DRIVER


def requests(job: TorchJob) -> Mapping[str, Requests]:
    """Return the requests of the next pod of each task with the agent, by task in lower case."""
    return {name.lower(): containers.read(_next_spec(job, name)) for name in job.spec.torch_task_specs}


def trial_pod(job: TorchJob) -> Manifest:
    """Return a pod with the agent, for a dry run. This pod has the labels, annotations and spec of the job's first
    task.
    """
    task_type, task = next(iter(job.spec.torch_task_specs.items()))
    metadata = task.template.get("metadata") or {}
    marks = {kind: metadata[kind] for kind in ("labels", "annotations") if metadata.get(kind)}
    spec = _next_spec(job, task_type) | {"restartPolicy": "Never"}
    name = {"generateName": f"{job.metadata.name}-trial-", "namespace": job.metadata.namespace}
    return PODS.manifest({**name, **marks}, spec=spec)


def is_kept(pod: Manifest) -> bool:
    """Return whether an API server has kept the agent and its rule: a server without the feature drops the rule."""
    agents = (each for each in pod["spec"].get("initContainers") or () if each["name"] == containers.RESTART_AGENT)
    return any(agent.get("restartPolicyRules") == [RULE] for agent in agents)


def _next_spec(job: TorchJob, task_type: str) -> dict[str, Any]:
    task = job.spec.torch_task_specs[task_type]
    amount = memory_growth.of_next(task, job.status.memory.get(task_type, 0))
    spec = memory_growth.enlarge(task.template["spec"], amount) if amount else dict(task.template["spec"])
    add_agent(spec)
    return spec
