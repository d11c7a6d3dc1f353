"""The embedded node: the scheduler and the only node of a cluster on this machine.

One rule: the process may be killed at any moment. The pods of the node continue, and the next node process takes the
pods over. A second node process on the same data folder is refused.

Run it with `python -m embedded.node.node --data DIR --kubeconfig FILE`, or in a test with `running_node(...)`.
"""

import argparse
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crds.api_resources import NODES, PODS
from embedded import pod, volcano_crds
from embedded.layout import Layout
from embedded.node import registration
from embedded.node.kubelet import Kubelet
from embedded.node.pods import container_environment
from embedded.node.pods.config_reader import ConfigReader
from embedded.node.pods.kept_logs import KeptLogs
from embedded.node.pods.node_context import NodeContext
from embedded.node.pods.status_reporter import Reporter
from embedded.node.registration import Heartbeat
from embedded.node.resources import machine as node_machine
from embedded.node.resources.devices import Devices
from embedded.node.resources.machine import Machine
from embedded.node.resources.memory_watch import MemoryWatch
from embedded.node.resources.port_watch import PortWatch
from embedded.node.runs import cgroups
from embedded.node.runs.container_runs import LOG_BYTES, ContainerRuns
from embedded.node.shutdown import shutdown_record
from embedded.node.shutdown.shutdown import NodeShutdown
from embedded.node.status.pod_lifecycle import Backoff
from embedded.pod import LocalPod
from embedded.scheduler.scheduler import ObservedNode, Scheduler
from kube import client, errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from kube.object_errors import ObjectErrors
from kube.process import threads
from kube.settings import ConnectionSettings
from kube.stop import PatientStop

logger = logging.getLogger(__name__)

NAME = "local"
"""The node's name."""
_SYNC_SECONDS = 30.0
_POLL_SECONDS = 0.05


class NodeFailed(Exception):
    """The node cannot run; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of a node."""

    machine: Machine
    name: str = NAME
    backoff: Backoff = field(default_factory=Backoff)
    """The waits before containers are restarted."""
    log_bytes: int = LOG_BYTES
    """The limit of the log of each container, in bytes."""
    stop_pods: bool = False
    """Whether the pods' processes end with the node. Otherwise they go on, and the next node takes them over."""
    runs_pods: bool = True
    """Whether the node accepts pods and starts containers. Otherwise it only ends the containers that run."""


class LocalNode:
    """The threads of the node and the scheduler."""

    def __init__(self, cluster: Cluster, layout: Layout, settings: NodeSettings) -> None:
        self._cluster = cluster
        self.stop_pods = settings.stop_pods
        """Whether the pods end when the node stops."""
        self._runs_pods = settings.runs_pods
        self._layout = layout
        self._node = registration.node(settings.name, settings.machine)
        self.errors = ObjectErrors()
        """The objects that could not be handled, with the error of each."""
        self._reporter = Reporter(cluster, self.errors)
        self._config_reader = ConfigReader(cluster)
        runs = ContainerRuns(layout, settings.log_bytes, cgroups.find())
        self._memory = MemoryWatch(runs.record_oom, self.errors)
        self._ports = PortWatch(cluster, self.errors)
        ground = NodeContext(
            layout=layout,
            runs=runs,
            devices=Devices(layout, settings.machine.gpus),
            reporter=self._reporter,
            config_reader=self._config_reader,
            kept_logs=KeptLogs(layout),
            base=container_environment.base_environment(os.environ, str(Path(sys.executable).parent)),
            allocatable=self._node.allocatable,
            memory=self._memory,
            ports=self._ports,
            shutdown=NodeShutdown(layout),
            backoff=settings.backoff,
        )
        self._kubelet = Kubelet(settings.name, ground, errors=self.errors)
        self._pods: Informer[LocalPod] = Informer(
            cluster, PODS, trim=pod.read, on_change=self._on_pod_change, errors=self.errors
        )
        self._nodes: Informer[ObservedNode] = Informer(
            cluster, NODES, trim=_observed_node, on_change=self._on_node_change
        )
        self._scheduler = Scheduler(cluster, self._node, self._pods.values, time.time, self._observed_node, self.errors)
        gangs = self._scheduler.pod_groups.caches if settings.runs_pods else ()
        self._caches: tuple[Informer[Any], ...] = (self._pods, self._nodes, *gangs)
        self._heartbeat = Heartbeat(cluster, self._node, self.errors)

    def start(self) -> None:
        """Register the node and start its threads.

        Raise ClusterError if the API server does not answer or refuses a request, and NodeFailed if it is slow.
        """
        if self._runs_pods:
            volcano_crds.install(self._cluster)  # the kinds come first: they exist as soon as a client sees the node
            registration.register(self._cluster, self._node, time.time())
        for cache in self._caches:
            cache.start()
        for cache in self._caches:
            if not cache.wait_synced(_SYNC_SECONDS):
                self._stop_caches()
                resource, reason = cache.resource.plural, cache.failing
                raise NodeFailed(f"the API server did not list {resource} in {_SYNC_SECONDS:.0f} s: {reason}")
        self._reporter.start()
        self._config_reader.start()
        self._heartbeat.start()
        self._memory.start()
        self._ports.start()
        if not self._runs_pods:
            self._kubelet.shut_down()
        self._kubelet.start(self._pods.values())
        if self._runs_pods:
            self._scheduler.start()

    def shut_down(self, order: PatientStop) -> None:
        """End the pods, each with its whole grace, as a node that shuts down does.

        The method returns when the pods have ended, or when `order` changes so that the pods are to continue.
        """
        self._stop_scheduler()
        self._heartbeat.shut_down()
        self._kubelet.shut_down()
        pods = self._kubelet.ending_pods
        while pods != () and not order.leaves:
            if order.hurried:
                self._kubelet.hurry()
            if pods is not None and pods != shutdown_record.ending_pods(self._layout):
                with suppress(OSError):
                    shutdown_record.write_ending_pods(self._layout, pods)
            time.sleep(_POLL_SECONDS)
            pods = self._kubelet.ending_pods
        shutdown_record.clear_ending_pods(self._layout)
        self.stop_pods = False

    def stop(self) -> None:
        """End the threads after they have written their results. Pods that are to stop with the node are killed."""
        if self.stop_pods:
            order = PatientStop(signal.SIGINT)
            order.hurried = True
            self.shut_down(order)
        self._stop_scheduler()
        self._kubelet.stop()
        self._memory.stop()
        self._ports.stop()
        self._heartbeat.stop()
        self._stop_caches()
        self._config_reader.stop()
        self._reporter.stop()

    def _stop_scheduler(self) -> None:
        if self._runs_pods:
            self._scheduler.stop()

    def _stop_caches(self) -> None:
        for cache in self._caches:
            cache.stop()

    def _observed_node(self) -> ObservedNode:
        return self._nodes.get("", self._node.name) or ObservedNode()

    def _on_node_change(self, before: ObservedNode | None, after: ObservedNode | None) -> None:
        if before != after:
            self._scheduler.wake()

    def _on_pod_change(self, before: LocalPod | None, after: LocalPod | None) -> None:
        self._kubelet.on_change(before, after)
        self._scheduler.wake()


def _observed_node(node: Manifest) -> ObservedNode:
    cordoned = (node.get("spec") or {}).get("unschedulable") is True
    return ObservedNode(cordoned, node["metadata"].get("labels") or {})


@contextmanager
def running_node(cluster: Cluster, layout: Layout, settings: NodeSettings) -> Iterator[LocalNode]:
    """Run a node for the time of the block, as the only node on its data folder.

    Raise NodeFailed or ClusterError if the node fails.
    """
    with _exclusive_lock(layout):
        node = LocalNode(cluster, layout, settings)
        node.start()
        try:
            yield node
        finally:
            node.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run a node until SIGTERM or SIGINT. Return exit code 1, after a line with the reason, if it could not run.

    With --stop-pods, SIGTERM ends the pods with their grace, and SIGUSR2 kills them at once. The death of a supervisor
    sends SIGINT: the pods continue, even if they were being stopped, and the next node takes the pods over.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    threads.exit_on_thread_failure()
    stop = PatientStop(leave=signal.SIGINT)
    stop.listen()
    if options.shut_down:
        stop.request()
        stop.hurried = options.now
    try:
        settings = _settings(options)
        cluster = client.connect(ConnectionSettings(kubeconfig=options.kubeconfig, user_agent="torchq-node"))
        with running_node(cluster, Layout(options.data), settings) as node:
            logger.info("node %s runs pods; it has %s", settings.name, settings.machine)
            stop.wait()
            if stop.leaves or not settings.stop_pods:
                node.stop_pods = False
            else:
                node.shut_down(stop)
    except (NodeFailed, errors.ClusterError, ValueError, OSError) as e:
        print(f"node: {e}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m embedded.node.node", description="Run the embedded node.")
    parser.add_argument("--data", type=Path, required=True, help="the cluster's data folder")
    parser.add_argument("--kubeconfig", required=True, help="how to reach the API server")
    parser.add_argument("--cpus", default="", help="CPUs for pods, as in 4 or 2500m (default: this machine's)")
    parser.add_argument("--memory", default="", help="memory for pods, as in 8Gi (default: this machine's)")
    parser.add_argument("--gpus", type=int, help="GPUs for pods (default: this machine's)")
    parser.add_argument(
        "--container-log-max-size", default="64Mi", help="output kept of each container, all its log files together"
    )
    parser.add_argument("--stop-pods", action="store_true", help="end the pods' processes when the node ends")
    parser.add_argument("--shut-down", action="store_true", help="run no pods: end those that run, then end")
    parser.add_argument("--now", action="store_true", help="with --shut-down: kill them")
    return parser


def _settings(options: argparse.Namespace) -> NodeSettings:
    options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    if options.gpus is not None and options.gpus < 0:
        raise ValueError(f"--gpus must not be negative, not {options.gpus}")
    measured = node_machine.measure(options.data, os.environ)
    machine = node_machine.override(measured, options.cpus, options.memory, options.gpus)
    log_bytes = node_machine.log_bytes(options.container_log_max_size)
    stop_pods = options.stop_pods or options.shut_down
    return NodeSettings(machine, log_bytes=log_bytes, stop_pods=stop_pods, runs_pods=not options.shut_down)


@contextmanager
def _exclusive_lock(layout: Layout) -> Iterator[None]:
    """Hold the lock of the only node of a data folder; the lock ends with the process.

    Raise NodeFailed if another node has the lock.
    """
    layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(layout.root / "node.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise NodeFailed(f"another node runs on {layout.root}; stop it, or choose another data folder") from e
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
