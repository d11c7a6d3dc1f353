"""The settings about nodes and their failures, as a part of `coordinator.settings.Settings`.

One rule: each name that an admin lists is checked here.
"""

from typing import Annotated

import pydantic
from pydantic import AfterValidator, Field

from crds import label_names

Seconds = Annotated[float, Field(gt=0, le=86_400)]
LEAVING_TAINTS = (
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
    "remediator.aks.microsoft.com/unschedulable",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
)
"""The taints with which autoscalers and clouds announce the end of a node; docs/elastic.md has their documents."""


def _check_label_names(text: str) -> str:
    label_names.parse_list(text)
    return text


LabelNames = Annotated[str, AfterValidator(_check_label_names)]
"""Names of labels, separated by commas."""


class NodeRules(pydantic.BaseModel):
    """The settings of an admin about nodes."""

    # Commands validate `Settings` alone, which is built at once.
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", defer_build=True)

    node_failures: int = Field(
        default=3, ge=1, le=1_000, description="after this many failures of its pods on a node, a job avoids that node"
    )
    dead_node_grace: Seconds = Field(
        default=60.0,
        description="how long a node may be silent, and a pod on it exceed its own grace, before the pod is deleted "
        "without an answer of the node",
    )
    leaving_taints: LabelNames = Field(
        default=",".join(LEAVING_TAINTS),
        description="keys of the taints of nodes that are about to go away, separated by commas: pods leave such nodes "
        "early (default: those of Karpenter, Cluster Autoscaler, AWS, GKE, AKS and cloud providers, docs/elastic.md)",
    )

    placement_hints: bool = Field(
        default=True,
        description="pods prefer the nodes on which their job was placed when it was admitted, so that the cluster's "
        "scheduler leaves whole nodes to the pods that need them (with pool: nodes)",
    )
    topology_labels: LabelNames = Field(
        default="",
        description="labels of nodes, the widest first (block,rack,host), separated by commas: pods of static worlds "
        "that are close to each other get ranks in a row, and jobs may require or prefer one value of a label "
        "(schedulingPolicy.topology, with pool: nodes); empty: off",
    )

    @pydantic.field_validator("topology_labels")
    @classmethod
    def _few_levels(cls, text: str) -> str:
        if len(label_names.parse_list(text)) > label_names.MOST_LEVELS:
            raise ValueError(f"at most {label_names.MOST_LEVELS} labels are possible")
        return text

    @property
    def topology(self) -> tuple[str, ...]:
        """The names in `topology_labels`."""
        return label_names.parse_list(self.topology_labels)

    @property
    def taints_of_leaving_nodes(self) -> frozenset[str]:
        """The keys in `leaving_taints`."""
        return frozenset(label_names.parse_list(self.leaving_taints))
