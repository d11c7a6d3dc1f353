"""The columns of `kubectl get` for the built-in resources.

One rule: a table; every cell has the text that a Kubernetes API server prints, because scripts and users rely on it.
"""

from collections.abc import Callable
from typing import Any

from embedded.apiserver.kinds.printing import ages, pod_columns
from embedded.apiserver.kinds.printing.columns import Cells, age, name, plain, timed
from kube.api import Manifest

NONE = "<none>"
_ROLE = "node-role.kubernetes.io/"


def _spec(body: Manifest) -> dict[str, Any]:
    return body.get("spec") or {}


def _status(body: Manifest) -> dict[str, Any]:
    return body.get("status") or {}


def _pairs(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


# Nodes


def _node_state(body: Manifest) -> str:
    ready = next((c for c in _status(body).get("conditions") or () if c.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return state + (",SchedulingDisabled" if _spec(body).get("unschedulable") else "")


def _roles(body: Manifest) -> str:
    labels = body["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or NONE


def _address(kind: str) -> Callable[[Manifest], str]:
    def read(body: Manifest) -> str:
        addresses = _status(body).get("addresses") or ()
        return next((address["address"] for address in addresses if address.get("type") == kind), NONE)

    return read


def _info(field: str) -> Callable[[Manifest], str]:
    return lambda body: (_status(body).get("nodeInfo") or {}).get(field) or "<unknown>"


_NODES = [
    plain("Status", _node_state),
    plain("Roles", _roles),
    age(),
    plain("Version", lambda body: (_status(body).get("nodeInfo") or {}).get("kubeletVersion", "")),
    plain("Internal-IP", _address("InternalIP"), wide=True),
    plain("External-IP", _address("ExternalIP"), wide=True),
    plain("OS-Image", _info("osImage"), wide=True),
    plain("Kernel-Version", _info("kernelVersion"), wide=True),
    plain("Container-Runtime", _info("containerRuntimeVersion"), wide=True),
]


# Services


def _port(port: dict[str, Any]) -> str:
    outside = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{outside}/{port.get('protocol', 'TCP')}"


def _ports(body: Manifest) -> str:
    return ",".join(map(_port, _spec(body).get("ports") or ())) or NONE


_SERVICES = [
    plain("Type", lambda body: _spec(body).get("type", "")),
    plain("Cluster-IP", lambda body: _spec(body).get("clusterIP") or NONE),
    plain("External-IP", lambda body: ",".join(_spec(body).get("externalIPs") or ()) or NONE),
    plain("Port(s)", _ports),
    age(),
    plain("Selector", lambda body: _pairs(_spec(body).get("selector")), wide=True),
]


# Events


def _first(body: Manifest) -> Any:
    return body.get("firstTimestamp") or body.get("eventTime")


def _last_seen(body: Manifest, now: float) -> str:
    series = body.get("series") or {}
    return ages.ago(series.get("lastObservedTime") or body.get("lastTimestamp") or _first(body), now)


def _source(body: Manifest) -> str:
    source = body.get("source") or {}
    component = source.get("component") or body.get("reportingComponent") or ""
    host = source.get("host") or body.get("reportingInstance") or ""
    return ", ".join(filter(None, (component, host)))


def _object_reference(body: Manifest) -> str:
    involved = body.get("involvedObject") or {}
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


_EVENTS = [
    timed("Last Seen", _last_seen),
    plain("Type", lambda body: body.get("type", "")),
    plain("Reason", lambda body: body.get("reason", "")),
    plain("Object", _object_reference),
    plain("Subobject", lambda body: (body.get("involvedObject") or {}).get("fieldPath", ""), wide=True),
    plain("Source", _source, wide=True),
    plain("Message", lambda body: str(body.get("message", "")).strip()),
    timed("First Seen", lambda body, now: ages.ago(_first(body), now), wide=True),
    plain("Count", lambda body: (body.get("series") or {}).get("count") or body.get("count") or 1, wide=True),
    name(wide=True),
]


# Resources without behaviour on the embedded cluster


def _size(*fields: str) -> Callable[[Manifest], int]:
    return lambda body: sum(len(body.get(field) or {}) for field in fields)


def _amounts(body: Manifest, prefix: str) -> str:
    status = _status(body)
    hard, used = status.get("hard") or {}, status.get("used") or {}
    return ", ".join(f"{key}: {used.get(key, 0)}/{hard[key]}" for key in sorted(hard) if key.startswith(prefix))


TABLES: dict[str, list[Cells]] = {
    "pods": [name(), *pod_columns.COLUMNS],
    "nodes": [name(), *_NODES],
    "services": [name(), *_SERVICES],
    "namespaces": [name(), plain("Status", lambda body: _status(body).get("phase", "")), age()],
    "events": _EVENTS,
    "configmaps": [name(), plain("Data", _size("data", "binaryData")), age()],
    "secrets": [
        name(),
        plain("Type", lambda body: body.get("type", "")),
        plain("Data", _size("data"), kind="integer"),
        age(),
    ],
    "serviceaccounts": [name(), plain("Secrets", lambda body: len(body.get("secrets") or ())), age()],
    "resourcequotas": [
        name(),
        plain("Request", lambda body: _amounts(body, "")),
        plain("Limit", lambda body: _amounts(body, "limits.")),
        age(),
    ],
    "leases.coordination.k8s.io": [name(), plain("Holder", lambda body: _spec(body).get("holderIdentity", "")), age()],
    "priorityclasses.scheduling.k8s.io": [
        name(),
        plain("Value", lambda body: body.get("value", 0), kind="integer"),
        plain("Global-Default", lambda body: bool(body.get("globalDefault")), kind="boolean"),
        age(),
        plain("PreemptionPolicy", lambda body: body.get("preemptionPolicy", "PreemptLowerPriority")),
    ],
    "customresourcedefinitions.apiextensions.k8s.io": [
        name(),
        plain("Created At", lambda body: body["metadata"].get("creationTimestamp", ""), kind="date"),
    ],
}
"""The columns of each resource, by its storage name."""
