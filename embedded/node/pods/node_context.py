"""The parts of the node that the workers of all its pods share.

One rule: values only. The node makes one context when it starts, and every pod worker reads from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crds.resources.amounts import Amounts
from embedded.layout import Layout
from embedded.node.pods.config_reader import ConfigReader
from embedded.node.pods.kept_logs import KeptLogs
from embedded.node.pods.status_reporter import Reporter
from embedded.node.resources.devices import Devices
from embedded.node.resources.memory_watch import MemoryWatch
from embedded.node.resources.port_watch import PortWatch
from embedded.node.runs.container_runs import ContainerRuns
from embedded.node.shutdown.shutdown import NodeShutdown
from embedded.node.status.pod_lifecycle import Backoff


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The parts of the node that a pod worker uses."""

    layout: Layout
    runs: ContainerRuns
    devices: Devices
    reporter: Reporter
    config_reader: ConfigReader
    kept_logs: KeptLogs
    base: Mapping[str, str]
    """The variables from which the environment of every container starts."""
    allocatable: Amounts
    memory: MemoryWatch
    ports: PortWatch
    shutdown: NodeShutdown
    backoff: Backoff = field(default_factory=Backoff)
