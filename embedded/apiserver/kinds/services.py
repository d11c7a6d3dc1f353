"""Services: their shape, what is filled in, and what is wrong with one.

One rule: every service is headless here, since nothing answers on virtual addresses; what a client says of them is
judged all the same.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import metadata
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
    many,
    mapping,
    merged,
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
    selector=atomic(mapping(TEXT)),
    ports=merged(_PORT, "port"),
    clusterIPs=many(TEXT),
    ipFamilies=many(TEXT),
    externalIPs=many(TEXT),
    loadBalancerSourceRanges=many(TEXT),
    publishNotReadyAddresses=FLAG,
    allocateLoadBalancerNodePorts=FLAG,
    healthCheckNodePort=NUMBER,
    sessionAffinityConfig=OPEN,
)
STATUS = fields(loadBalancer={**fields(ingress=many(OPEN)), "x-kept": True}, conditions=CONDITIONS)
_PLACED = ("LoadBalancer", "NodePort")
"""Types of services that need an address."""
_KEPT = ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
"""What an update that does not name it leaves as it is."""


def complete(new: Manifest, old: Manifest | None) -> None:
    """Fill in the rest of a service."""
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
    """What is wrong with a service, or with the change of one."""
    spec, before = new["spec"], (old or {}).get("spec", {})
    external = spec["type"] == "ExternalName"
    unplaced = [] if external else list(_check_address(spec, before))
    yield from unplaced
    if unplaced and old is None:
        return  # as where addresses are allocated first
    if external and not spec.get("externalName"):
        yield status_errors.required("spec.externalName")
    if not spec.get("ports") and not external and spec.get("clusterIP") != _HEADLESS:
        yield status_errors.required("spec.ports")
    yield from _check_ports(spec.get("ports") or [])
    if spec.get("selector") and spec.get("ipFamilyPolicy") == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        yield status_errors.wrong("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why)
    yield from _check_selector(spec.get("selector") or {})
    if (new.get("status") or {}).get("loadBalancer", {}).get("ingress") and spec["type"] != "LoadBalancer":
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        yield status_errors.not_allowed("status.loadBalancer.ingress", why)


def _check_selector(selector: dict[str, str]) -> Iterator[Cause]:
    for key, value in selector.items():
        yield from (status_errors.wrong("spec.selector", key, text) for text in metadata.qualified_problems(key))
        yield from (status_errors.wrong("spec.selector", value, text) for text in metadata.value_problems(value))


def _check_address(spec: dict[str, Any], before: dict[str, Any]) -> Iterator[Cause]:
    path, address = "spec.clusterIPs[0]", spec.get("clusterIP", "")
    if before.get("clusterIP") and address != before["clusterIP"] and spec["type"] == before.get("type"):
        yield status_errors.wrong(path, spec.get("clusterIPs", []), "may not change once set")
    elif address == _HEADLESS and spec["type"] in _PLACED:
        yield status_errors.wrong(path, address, f"may not be set to 'None' for {spec['type']} services")
    elif address not in {"", _HEADLESS} and not _is_address(address):
        yield status_errors.wrong(path, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _check_ports(ports: list[dict[str, Any]]) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if not name and len(ports) > 1:
            yield status_errors.required(f"{path}.name")
        elif name and metadata.label_problem(name):
            yield status_errors.wrong(f"{path}.name", name, metadata.label_problem(name))
        elif name in names:
            yield status_errors.duplicate(f"{path}.name", name)
        names.add(name)
        yield from _check_numbers(port, path)


def _check_numbers(port: dict[str, Any], path: str) -> Iterator[Cause]:
    for name in ("port", "targetPort"):
        value = port.get(name, 0)
        if isinstance(value, int) and not 1 <= value <= 65535:
            yield status_errors.wrong(f"{path}.{name}", value, "must be between 1 and 65535, inclusive")
        elif isinstance(value, str):
            yield from (status_errors.wrong(f"{path}.{name}", value, text) for text in port_name_problems(value))


def port_name_problems(name: str) -> Iterator[str]:
    """Why a text is no name of a port that a container has."""
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
