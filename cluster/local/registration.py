"""The node's own object, and its sign of life.

One rule: a sign of life changes a Lease and nothing else, so that who watches nodes hears only of changes.
"""

import logging
import os
import platform
import threading
import time
from datetime import UTC, datetime
from typing import Any

from cluster import errors
from cluster.api import Cluster, Manifest
from cluster.local import podstatus
from cluster.local.capacity import Machine
from cluster.local.room import Node
from crds import quantities
from crds.resources import LEASES, NAMESPACES, NODES

logger = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
_RENEW_SECONDS = 10.0
_LEASE_SECONDS = 40


def node(name: str, machine: Machine) -> Node:
    """The node that a machine makes."""
    amounts = machine.amounts
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
    }
    return Node(name, amounts, labels)


def register(cluster: Cluster, node: Node, now: float) -> None:
    """Make or correct the Node object, and the namespace of its lease."""
    body: Manifest = {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {},
    }
    try:
        cluster.create(NODES, body)
    except errors.AlreadyExists:
        cluster.patch(NODES, node.name, {"metadata": {"labels": dict(node.labels)}})
    before = cluster.get(NODES, node.name).get("status") or {}
    status = _status(node, before, now)
    if podstatus.differs(status, before):
        cluster.patch(NODES, node.name, {"status": status}, subresource="status")
    try:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
        cluster.create(NAMESPACES, namespace)
    except errors.AlreadyExists:
        logger.debug("namespace %s is there", LEASE_NAMESPACE)


class Heartbeat:
    """A thread that renews the node's lease."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster = cluster
        self._node = node
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-lease")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._renew(time.time())
            except errors.ClusterError as e:
                logger.warning("the lease of node %s is not renewed: %s", self._node.name, e)
            self._stopping.wait(_RENEW_SECONDS)

    def _renew(self, now: float) -> None:
        spec = {
            "holderIdentity": self._node.name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            self._cluster.patch(LEASES, self._node.name, {"spec": spec}, LEASE_NAMESPACE)
        except errors.NotFound:
            metadata = {"name": self._node.name, "namespace": LEASE_NAMESPACE}
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
            self._cluster.create(LEASES, body, LEASE_NAMESPACE)


def _status(node: Node, before: dict[str, Any], now: float) -> dict[str, Any]:
    amounts = {name: quantities.text(name, amount) for name, amount in sorted(node.allocatable.items())}
    ready = podstatus.condition("Ready", True, "NodeReady", "the embedded node runs pods")
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": podstatus.merge_conditions(before.get("conditions") or (), [ready], now),
        "addresses": [
            {"type": "InternalIP", "address": podstatus.ADDRESS},
            {"type": "Hostname", "address": node.name},
        ],
        "nodeInfo": {
            "kernelVersion": os.uname().release,
            "operatingSystem": "linux",
            "architecture": node.labels["kubernetes.io/arch"],
            "osImage": platform.platform(),
            "containerRuntimeVersion": "processes://1",
            "kubeletVersion": "torchq",
        },
    }
