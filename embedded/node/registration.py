"""The Node object and the Lease that shows that the node is alive.

One rule: a sign of life changes the Lease and nothing else, so that watches of nodes deliver only real changes.
"""

import logging
import os
import platform
import threading
import time
from typing import Any

from crds import timestamps
from crds.api_resources import LEASES, NAMESPACES, NODES
from crds.labels import EMBEDDED, OBJECT_ERRORS
from crds.resources import quantities
from embedded.node.resources.machine import Machine
from embedded.node.status.pod_status import ADDRESS
from embedded.scheduler.node_capacity import Node
from embedded.status_conditions import condition, differs, merge_conditions, well_formed
from kube import errors
from kube.api import Cluster
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
RENEW_SECONDS = 10.0
_LEASE_SECONDS = 40


def node(name: str, machine: Machine) -> Node:
    """Return the node that offers the resources of a machine."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    labels = {"hostname": name, "os": "linux", "arch": architecture}
    return Node(name, machine.amounts, {f"kubernetes.io/{key}": value for key, value in labels.items()})


def register(cluster: Cluster, node: Node, now: float) -> None:
    """Create or correct the Node object and the namespace of its lease."""
    try:
        cluster.create(NODES, NODES.manifest({"name": node.name, "labels": dict(node.labels)}, spec={}))
    except errors.AlreadyExists:
        cluster.patch(NODES, node.name, {"metadata": {"labels": dict(node.labels)}})
    before = cluster.get(NODES, node.name).get("status") or {}
    if _was_away(cluster, node, now):  # a node controller would have set Ready to Unknown: the node becomes ready now
        conditions = [item for item in well_formed(before.get("conditions")) if item["type"] != "Ready"]
        before = {**before, "conditions": conditions}
    status = _status(node, before, now)
    if differs(status, before):
        cluster.patch(NODES, node.name, {"status": status}, subresource="status")
    try:
        cluster.create(NAMESPACES, NAMESPACES.manifest({"name": LEASE_NAMESPACE}))
    except errors.AlreadyExists:
        logger.debug("namespace %s exists", LEASE_NAMESPACE)


class Heartbeat:
    """A thread that renews the node's lease and updates the node's conditions."""

    def __init__(self, cluster: Cluster, node: Node, errors: ObjectErrors | None = None) -> None:
        self._cluster = cluster
        self._node = node
        self._errors = errors or ObjectErrors()
        self._reported_errors = ""
        self._shutting_down = False
        self._reported_shutdown = False
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-lease")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._changed.set()
        self._thread.join()

    def shut_down(self) -> None:
        """Set the node's condition Ready to false, because the node shuts down."""
        self._shutting_down = True
        self._changed.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                with self._errors.skipping(f"the lease of Node {self._node.name}", leaving=(errors.ClusterError,)):
                    self._renew(time.time())
                    self._report_errors(time.time())
                    if self._shutting_down and not self._reported_shutdown:  # with the kubelet's reason and message
                        self._write(condition("Ready", False, "KubeletNotReady", "node is shutting down"), time.time())
                        self._reported_shutdown = True
            except errors.ClusterError as e:
                logger.warning("the lease of node %s is not renewed yet: %s", self._node.name, e)
            if not self._stopping.is_set():
                self._changed.wait(RENEW_SECONDS)

    def _report_errors(self, now: float) -> None:
        """Write into the node's status which pods it could not handle, if that has changed.

        `torchq doctor` shows the condition.
        """
        message = self._errors.summary
        if message == self._reported_errors:
            return
        self._write(condition(OBJECT_ERRORS, bool(message), "Skipped" if message else "None", message), now)
        self._reported_errors = message

    def _write(self, update: dict[str, str], now: float) -> None:
        before = (self._cluster.get(NODES, self._node.name).get("status") or {}).get("conditions") or ()
        conditions = merge_conditions(before, [update], now)
        self._cluster.patch(NODES, self._node.name, {"status": {"conditions": conditions}}, subresource="status")

    def _renew(self, now: float) -> None:
        spec = {
            "holderIdentity": self._node.name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": timestamps.format_micro_time(now),
        }
        try:
            self._cluster.patch(LEASES, self._node.name, {"spec": spec}, LEASE_NAMESPACE)
        except errors.NotFound:
            metadata = {"name": self._node.name, "namespace": LEASE_NAMESPACE}
            self._cluster.create(LEASES, LEASES.manifest(metadata, spec=spec), LEASE_NAMESPACE)


def _was_away(cluster: Cluster, node: Node, now: float) -> bool:
    """Return whether the node's Lease has expired or does not exist."""
    try:
        renewed = (cluster.get(LEASES, node.name, LEASE_NAMESPACE).get("spec") or {}).get("renewTime")
        return renewed is None or now - timestamps.parse_seconds(renewed) > _LEASE_SECONDS
    except (errors.NotFound, ValueError, TypeError):
        return True


def _status(node: Node, before: dict[str, Any], now: float) -> dict[str, Any]:
    amounts = {name: quantities.format_amount(name, amount) for name, amount in sorted(node.allocatable.items())}
    others = [item for item in well_formed(before.get("conditions")) if item["type"] != OBJECT_ERRORS]
    ready = condition("Ready", True, "NodeReady", "the embedded node runs pods")
    return {
        # A merge patch: null removes a resource that the node no longer offers.
        **{field: {**dict.fromkeys(before.get(field) or ()), **amounts} for field in ("capacity", "allocatable")},
        "conditions": merge_conditions(others, [ready], now),
        "addresses": [
            {"type": "InternalIP", "address": ADDRESS},
            {"type": "Hostname", "address": node.name},
        ],
        "nodeInfo": {
            "kernelVersion": os.uname().release,
            "operatingSystem": "linux",
            "architecture": node.labels["kubernetes.io/arch"],
            "osImage": platform.platform(),
            "containerRuntimeVersion": "processes://1",
            "kubeletVersion": EMBEDDED,
        },
    }
