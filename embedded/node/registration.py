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

from crds.api_resources import LEASES, NAMESPACES, NODES
from crds.labels import EMBEDDED, OBJECT_ERRORS
from crds.resources import quantities
from embedded.node.resources.machine import Machine
from embedded.node.status import pod_status
from embedded.scheduler.node_capacity import Node
from kube import errors
from kube.api import Cluster, Manifest
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
RENEW_SECONDS = 10.0
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
    if _was_away(cluster, node, now):  # as a node controller sees it: it becomes ready now
        before = {**before, "conditions": [each for each in _conditions(before) if each["type"] != "Ready"]}
    status = _status(node, before, now)
    if pod_status.differs(status, before):
        cluster.patch(NODES, node.name, {"status": status}, subresource="status")
    try:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
        cluster.create(NAMESPACES, namespace)
    except errors.AlreadyExists:
        logger.debug("namespace %s is there", LEASE_NAMESPACE)


class Heartbeat:
    """A thread that renews the node's lease."""

    def __init__(self, cluster: Cluster, node: Node, errors: ObjectErrors | None = None) -> None:
        self._cluster = cluster
        self._node = node
        self._errors = errors or ObjectErrors()
        self._told = ""
        self._shutting_down = False
        self._told_shutdown = False
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-lease")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._news.set()
        self._thread.join()

    def shut_down(self) -> None:
        """Say from now on that the node is not ready, because it shuts down."""
        self._shutting_down = True
        self._news.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            try:
                self._renew(time.time())
                self._tell_errors(time.time())
                self._tell_shutdown(time.time())
            except errors.ClusterError as e:
                logger.warning("the lease of node %s is not renewed: %s", self._node.name, e)
            except Exception as e:
                self._errors.met(f"the lease of Node {self._node.name}", e)
            else:
                self._errors.over(f"the lease of Node {self._node.name}")
            if not self._stopping.is_set():
                self._news.wait(RENEW_SECONDS)

    def _tell_errors(self, now: float) -> None:
        """Say in the node's status which pods it could not handle, where that has changed: `torchq doctor` shows it."""
        shown = self._errors.shown
        if shown == self._told:
            return
        self._write(pod_status.condition(OBJECT_ERRORS, bool(shown), "Skipped" if shown else "None", shown), now)
        self._told = shown

    def _tell_shutdown(self, now: float) -> None:
        """In the words of the kubelet."""
        if self._shutting_down and not self._told_shutdown:
            self._write(pod_status.condition("Ready", False, "KubeletNotReady", "node is shutting down"), now)
            self._told_shutdown = True

    def _write(self, told: dict[str, str], now: float) -> None:
        before = (self._cluster.get(NODES, self._node.name).get("status") or {}).get("conditions") or ()
        conditions = pod_status.merge_conditions(before, [told], now)
        self._cluster.patch(NODES, self._node.name, {"status": {"conditions": conditions}}, subresource="status")

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


def _was_away(cluster: Cluster, node: Node, now: float) -> bool:
    """Whether the node has given no sign of life for as long as its Lease lasts."""
    try:
        renewed = (cluster.get(LEASES, node.name, LEASE_NAMESPACE).get("spec") or {}).get("renewTime")
        return renewed is None or now - datetime.fromisoformat(renewed).timestamp() > _LEASE_SECONDS
    except (errors.NotFound, ValueError, TypeError):
        return True


def _conditions(status: dict[str, Any]) -> list[Any]:
    return list(pod_status.sound(status.get("conditions")))


def _status(node: Node, before: dict[str, Any], now: float) -> dict[str, Any]:
    amounts = {name: quantities.text(name, amount) for name, amount in sorted(node.allocatable.items())}
    others = [each for each in pod_status.sound(before.get("conditions")) if each["type"] != OBJECT_ERRORS]
    ready = pod_status.condition("Ready", True, "NodeReady", "the embedded node runs pods")
    return {
        **{field: _replacing(amounts, before.get(field)) for field in ("capacity", "allocatable")},
        "conditions": pod_status.merge_conditions(others, [ready], now),
        "addresses": [
            {"type": "InternalIP", "address": pod_status.ADDRESS},
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


def _replacing(amounts: dict[str, str], before: Any) -> dict[str, str | None]:
    """As a merge patch: what the node offered before and offers no more is taken away."""
    return {**dict.fromkeys(before or ()), **amounts}
