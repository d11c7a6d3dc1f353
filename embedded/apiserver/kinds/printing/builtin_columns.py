"""The columns of `kubectl get` for the built-in resources.

One rule: a table; every cell has the text that a Kubernetes API server prints, because scripts and users rely on it.
"""

from collections.abc import Callable
from typing import Any

from embedded.apiserver.kinds.printing import ages, pod_columns
from embedded.apiserver.kinds.printing.printer_columns import (
    NONE,
    PrintedColumn,
    age_column,
    column,
    get_spec,
    get_status,
    name_column,
    time_column,
)
from kube.api import Manifest

_ROLE = "node-role.kubernetes.io/"


# Nodes


def _node_state(body: Manifest) -> str:
    ready = next((c for c in get_status(body).get("conditions") or () if c.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return state + (",SchedulingDisabled" if get_spec(body).get("unschedulable") else "")


def _roles(body: Manifest) -> str:
    labels = body["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or NONE


def _address(kind: str) -> Callable[[Manifest], str]:
    def read(body: Manifest) -> str:
        addresses = get_status(body).get("addresses") or ()
        return next((address["address"] for address in addresses if address.get("type") == kind), NONE)

    return read


def _info(field: str) -> Callable[[Manifest], str]:
    return lambda body: (get_status(body).get("nodeInfo") or {}).get(field) or "<unknown>"


_NODES = [
    column("Status", _node_state),
    column("Roles", _roles),
    age_column(),
    column("Version", lambda body: (get_status(body).get("nodeInfo") or {}).get("kubeletVersion", "")),
    column("Internal-IP", _address("InternalIP"), wide=True),
    column("External-IP", _address("ExternalIP"), wide=True),
    column("OS-Image", _info("osImage"), wide=True),
    column("Kernel-Version", _info("kernelVersion"), wide=True),
    column("Container-Runtime", _info("containerRuntimeVersion"), wide=True),
]


# Services


def _port(port: dict[str, Any]) -> str:
    outside = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{outside}/{port.get('protocol', 'TCP')}"


def _ports(body: Manifest) -> str:
    return ",".join(map(_port, get_spec(body).get("ports") or ())) or NONE


def _selector(body: Manifest) -> str:
    labels = get_spec(body).get("selector") or {}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE


_SERVICES = [
    column("Type", lambda body: get_spec(body).get("type", "")),
    column("Cluster-IP", lambda body: get_spec(body).get("clusterIP") or NONE),
    column("External-IP", lambda body: ",".join(get_spec(body).get("externalIPs") or ()) or NONE),
    column("Port(s)", _ports),
    age_column(),
    column("Selector", _selector, wide=True),
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
    time_column("Last Seen", _last_seen),
    column("Type", lambda body: body.get("type", "")),
    column("Reason", lambda body: body.get("reason", "")),
    column("Object", _object_reference),
    column("Subobject", lambda body: (body.get("involvedObject") or {}).get("fieldPath", ""), wide=True),
    column("Source", _source, wide=True),
    column("Message", lambda body: str(body.get("message", "")).strip()),
    time_column("First Seen", lambda body, now: ages.ago(_first(body), now), wide=True),
    column("Count", lambda body: (body.get("series") or {}).get("count") or body.get("count") or 1, wide=True),
    name_column(wide=True),
]


# Resources without behaviour on the embedded cluster


def _size(*fields: str) -> Callable[[Manifest], int]:
    return lambda body: sum(len(body.get(field) or {}) for field in fields)


def _amounts(body: Manifest, prefix: str) -> str:
    status = get_status(body)
    hard, used = status.get("hard") or {}, status.get("used") or {}
    return ", ".join(f"{key}: {used.get(key, 0)}/{hard[key]}" for key in sorted(hard) if key.startswith(prefix))


TABLES: dict[str, list[PrintedColumn]] = {
    "pods": [name_column(), *pod_columns.COLUMNS],
    "nodes": [name_column(), *_NODES],
    "services": [name_column(), *_SERVICES],
    "namespaces": [name_column(), column("Status", lambda body: get_status(body).get("phase", "")), age_column()],
    "events": _EVENTS,
    "configmaps": [name_column(), column("Data", _size("data", "binaryData")), age_column()],
    "secrets": [
        name_column(),
        column("Type", lambda body: body.get("type", "")),
        column("Data", _size("data"), kind="integer"),
        age_column(),
    ],
    "serviceaccounts": [name_column(), column("Secrets", lambda body: len(body.get("secrets") or ())), age_column()],
    "resourcequotas": [
        name_column(),
        column("Request", lambda body: _amounts(body, "")),
        column("Limit", lambda body: _amounts(body, "limits.")),
        age_column(),
    ],
    "leases.coordination.k8s.io": [
        name_column(),
        column("Holder", lambda body: get_spec(body).get("holderIdentity", "")),
        age_column(),
    ],
    "priorityclasses.scheduling.k8s.io": [
        name_column(),
        column("Value", lambda body: body.get("value", 0), kind="integer"),
        column("Global-Default", lambda body: bool(body.get("globalDefault")), kind="boolean"),
        age_column(),
        column("PreemptionPolicy", lambda body: body.get("preemptionPolicy", "PreemptLowerPriority")),
    ],
    "customresourcedefinitions.apiextensions.k8s.io": [
        name_column(),
        column("Created At", lambda body: body["metadata"].get("creationTimestamp", ""), kind="date"),
    ],
}
"""The columns of each resource, by its storage name."""
