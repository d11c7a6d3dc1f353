"""A Service of torchq to which a real API server is a proxy, with a server of the test behind it."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from coordinator.rbac.account_manifests import SYSTEM_NAMESPACE
from crds.api_resources import PODS, SERVICES, Resource
from kube.client import KubernetesCluster

ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")


@contextmanager
def behind(api: KubernetesCluster, name: str, address: str, port: int) -> Iterator[None]:
    """Let the API server be a proxy to an address while the block runs: it has to be the address of a pod."""
    target = {"kind": "Pod", "name": name, "namespace": SYSTEM_NAMESPACE}
    subset = {"addresses": [{"ip": address, "targetRef": target}], "ports": [{"name": "http", "port": port}]}
    bodies: dict[Resource, dict[str, Any]] = {
        PODS: {"spec": {"containers": [{"name": "torchq", "image": "torchq"}]}},
        SERVICES: {"spec": {"ports": [{"name": "http", "port": 8080}]}},
        ENDPOINTS: {"subsets": [subset]},
    }
    for kind, body in bodies.items():
        metadata = {"name": name, "namespace": SYSTEM_NAMESPACE}
        api.create(
            kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **body}, SYSTEM_NAMESPACE
        )
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    api.patch(PODS, name, {"status": status}, SYSTEM_NAMESPACE, subresource="status")
    try:
        yield
    finally:
        for kind in reversed(bodies):
            api.delete(kind, name, SYSTEM_NAMESPACE, grace_period_seconds=0)


def own_address() -> str:
    """Return an address of this machine that is not on loopback, where no pod is."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        try:
            asking.connect(("198.51.100.1", 9))  # nothing is sent: the kernel looks up the route
            found = str(asking.getsockname()[0])
        except OSError:
            found = "127.0.0.1"
    if found.startswith("127."):
        pytest.skip("this machine has no address but loopback, and no endpoint may be there")
    return found
