"""Whether Kubernetes restarts all containers of new pods on request: the features that nodes declare, and the fields
that the API server keeps.

One rule: an answer costs a request only every few minutes. A fact that cannot be known counts as an obstacle, in the
API server's words.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from crds.api_resources import PODS
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster
from reconcilers.pods import restart_agent
from reconcilers.views import node_view
from reconcilers.views.node_view import NodeCache

NODES_SECONDS = 1.0
"""How long an answer about nodes holds. There may be thousands of them."""
SERVER_SECONDS = 300.0
"""How long an answer of the API server holds. Its version changes without a sign."""
REFUSED_SECONDS = 60.0
"""How long a refusal holds for the other jobs of a namespace: a policy or a quota of it may be the reason."""
NOT_KEPT = "the API server does not keep restartPolicyRules with RestartAllContainers (Kubernetes 1.36)"


@dataclass(frozen=True, slots=True)
class _Answer:
    obstacle: str
    until: float


@dataclass(slots=True)
class RestartSupport:
    """Answers for one process; shared between threads."""

    cluster: Cluster
    nodes: NodeCache | None
    clock: Callable[[], float]
    _of_nodes: _Answer = _Answer("", 0.0)
    _of_server: _Answer = _Answer("", 0.0)
    _refused: dict[str, _Answer] = field(default_factory=dict)
    """The refusals by namespace."""

    def obstacle(self, job: TorchJob) -> str:
        """Return why Kubernetes cannot restart all containers of a job's next pods; empty if Kubernetes can."""
        return self._nodes_obstacle() or self._server_obstacle(job)

    def _nodes_obstacle(self) -> str:
        now, nodes = self.clock(), self.nodes
        if nodes is None or not nodes.synced:
            return "the nodes are not known"
        if now >= self._of_nodes.until:
            self._of_nodes = _Answer(node_view.restart_obstacle(nodes.values()), now + NODES_SECONDS)
        return self._of_nodes.obstacle

    def _server_obstacle(self, job: TorchJob) -> str:
        """Return the result of a dry run. While the API server refuses the dry run, the previous answer is used."""
        now, namespace = self.clock(), job.metadata.namespace
        if now < self._of_server.until:
            return self._of_server.obstacle
        refused = self._refused.get(namespace)
        if refused is not None and now < refused.until:
            return refused.obstacle
        try:
            pod = self.cluster.create(PODS, restart_agent.trial_pod(job), namespace, dry_run=True)
        except errors.ClusterError as error:
            is_known = self._of_server.until > 0
            obstacle = self._of_server.obstacle if is_known else f"a trial with a restart agent was refused: {error}"
            self._refused[namespace] = _Answer(obstacle, now + REFUSED_SECONDS)
            return obstacle
        self._refused.clear()
        self._of_server = _Answer("" if restart_agent.is_kept(pod) else NOT_KEPT, now + SERVER_SECONDS)
        return self._of_server.obstacle
