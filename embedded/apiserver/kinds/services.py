"""Services: their schema, defaults and validation.

One rule: every service is headless, since the embedded cluster has no virtual addresses. The addresses in a client's
request are validated nevertheless.
"""

import re
from collections.abc import Iterator
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta
from embedded.apiserver.kinds.pod_schema import (
    CONDITIONS,
    EITHER,
    FLAG,
    NUMBER,
    OPEN,
    TEXT,
    atomic,
    choice,
    fields,
    list_of,
    map_of,
    merge_list,
    texts,
)
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_HEADLESS = "None"
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PORT = fields(
    port=NUMBER,
    nodePort=NUMBER,
    targetPort=EITHER,
    protocol={**choice("SCTP", "TCP", "UDP"), "default": "TCP"},
    **texts("name", "appProtocol"),
)
SPEC = fields(
    **texts("clusterIP", "externalName", "externalTrafficPolicy", "internalTrafficPolicy"),
    **texts("ipFamilyPolicy", "loadBalancerIP", "loadBalancerClass", "trafficDistribution"),
    type=choice(*_TYPES),
    sessionAffinity=choice("ClientIP", _HEADLESS),
    selector=atomic(map_of(TEXT)),
    ports=merge_list(_PORT, "port"),
    clusterIPs=list_of(TEXT),
    ipFamilies=list_of(TEXT),
    externalIPs=list_of(TEXT),
    loadBalancerSourceRanges=list_of(TEXT),
    publishNotReadyAddresses=FLAG,
    allocateLoadBalancerNodePorts=FLAG,
    healthCheckNodePort=NUMBER,
    sessionAffinityConfig=OPEN,
)
STATUS = fields(loadBalancer={**fields(ingress=list_of(OPEN)), "x-kept": True}, conditions=CONDITIONS)
_PLACED = ("LoadBalancer", "NodePort")
"""The types of services that need an address."""
_KEPT = ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
"""The fields that an update without them leaves unchanged."""


def complete(new: Manifest, old: Manifest | None) -> None:
    """Fill in the defaults of a service."""
    spec = new.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port["targetPort"] = port.get("targetPort") or port.get("port", 0)
    if old is None:
        new["status"] = {"loadBalancer": {}}
    new.setdefault("status", {}).setdefault("loadBalancer", {})
    if spec["type"] == "ExternalName":
        return
    before = (old or {}).get("spec", {})
    if before.get("clusterIP"):
        spec.setdefault("clusterIP", before["clusterIP"])
        if spec["clusterIP"] == before["clusterIP"]:
            spec.update({name: before[name] for name in _KEPT if name in before and name not in spec})
    elif spec.get("ports"):
        spec.setdefault("clusterIP", _HEADLESS)
    _place(spec)


def _place(spec: dict[str, Any]) -> None:
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilyPolicy", "SingleStack" if spec.get("selector") else "RequireDualStack")
    spec.setdefault("ipFamilies", ["IPv4"] if spec.get("selector") else ["IPv4", "IPv6"])


def check(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a service, or of its change."""
    spec, before = new["spec"], (old or {}).get("spec", {})
    external = spec["type"] == "ExternalName"
    unplaced = [] if external else list(_check_address(spec, before))
    yield from unplaced
    if unplaced and old is None:
        return  # as in a Kubernetes API server, which allocates addresses first
    if external and not spec.get("externalName"):
        yield status_errors.required("spec.externalName")
    if not spec.get("ports") and not external and spec.get("clusterIP") != _HEADLESS:
        yield status_errors.required("spec.ports")
    yield from _check_ports(spec.get("ports") or [])
    if spec.get("selector") and spec.get("ipFamilyPolicy") == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        yield status_errors.invalid_value("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why)
    yield from object_meta.check_labels(spec.get("selector") or {}, "spec.selector")
    if (new.get("status") or {}).get("loadBalancer", {}).get("ingress") and spec["type"] != "LoadBalancer":
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        yield status_errors.not_allowed("status.loadBalancer.ingress", why)


def _check_address(spec: dict[str, Any], before: dict[str, Any]) -> Iterator[Cause]:
    path, address = "spec.clusterIPs[0]", spec.get("clusterIP", "")
    if before.get("clusterIP") and address != before["clusterIP"] and spec["type"] == before.get("type"):
        yield status_errors.invalid_value(path, spec.get("clusterIPs", []), "may not change once set")
    elif address == _HEADLESS and spec["type"] in _PLACED:
        yield status_errors.invalid_value(path, address, f"may not be set to 'None' for {spec['type']} services")
    elif address not in {"", _HEADLESS} and object_meta.ip_address_problem(address):
        yield status_errors.invalid_value(path, address, object_meta.ip_address_problem(address))


def _check_ports(ports: list[dict[str, Any]]) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if not name and len(ports) > 1:
            yield status_errors.required(f"{path}.name")
        elif name and object_meta.dns_label_problem(name):
            yield status_errors.invalid_value(f"{path}.name", name, object_meta.dns_label_problem(name))
        elif name in names:
            yield status_errors.duplicate(f"{path}.name", name)
        names.add(name)
        yield from _check_numbers(port, path)


def _check_numbers(port: dict[str, Any], path: str) -> Iterator[Cause]:
    for name in ("port", "targetPort"):
        value = port.get(name, 0)
        if isinstance(value, int) and not 1 <= value <= 65535:
            yield status_errors.invalid_value(f"{path}.{name}", value, "must be between 1 and 65535, inclusive")
        elif isinstance(value, str):
            yield from status_errors.invalid_values(f"{path}.{name}", value, port_name_problems(value))


def port_name_problems(name: str) -> Iterator[str]:
    """Yield the reasons why a text is not the name of a container's port."""
    if len(name) > 15:
        yield "must be no more than 15 characters"
    if not re.fullmatch(r"[-a-z0-9]*", name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search(r"[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"
