"""The resources that are there without a CRD.

One rule: a table; each resource's shape is given as far as torchq and its users write it, and open where nobody checks.
"""

import base64
from collections.abc import Iterator
from typing import Any

from cluster.api import Manifest
from cluster.local import contents, definitions, metadata, pod_rules, priorities, refusals
from cluster.local.catalog import Column, Kind
from cluster.local.pod_schema import (
    EITHER,
    FLAG,
    NUMBER,
    OPEN,
    POD,
    SWITCH,
    TEXT,
    choice,
    fields,
    kept,
    many,
    mapping,
    merged,
    texts,
)
from cluster.local.refusals import Cause
from cluster.local.schema import compile_schema
from crds.resources import CRDS, EVENTS, LEASES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, SERVICES, Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")

_OBJECT = {"apiVersion": TEXT, "kind": TEXT, "metadata": metadata.SCHEMA}
_POD_FIELDS = (
    *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    *("status.phase", "status.podIP", "status.nominatedNodeName"),
)
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_STATUS = frozenset({"status"})


def _shape(**properties: dict[str, Any]) -> Any:
    return compile_schema(fields(**_OBJECT, **properties))


def _begin_namespace(new: Manifest, old: Manifest | None) -> None:
    if old is None:
        new["spec"], new["status"] = {"finalizers": ["kubernetes"]}, {"phase": "Active"}
    else:
        new["spec"] = old.get("spec", {})  # which is the server's: it holds what the namespace contains
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")


def _begin_service(new: Manifest, old: Manifest | None) -> None:
    if old is None:
        spec = new.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        # This cluster has no virtual addresses: every service is headless.
        spec.setdefault("clusterIP", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["clusterIP"] == "None":
            spec.setdefault("clusterIPs", ["None"])
        spec.setdefault("ipFamilyPolicy", "SingleStack" if spec.get("selector") else "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4"] if spec.get("selector") else ["IPv4", "IPv6"])
        new["status"] = {"loadBalancer": {}}
    for port in (new.get("spec") or {}).get("ports") or ():
        port.setdefault("targetPort", port.get("port", 0))


def _check_service(new: Manifest, old: Manifest | None) -> Iterator[Cause]:  # noqa: ARG001
    for index, port in enumerate(new["spec"].get("ports") or ()):
        for name in ("port", "targetPort"):
            number = port.get(name, 0)
            if isinstance(number, int) and not 1 <= number <= 65535:
                yield refusals.wrong(f"spec.ports[{index}].{name}", number, "must be between 1 and 65535, inclusive")


def _encode_secret(new: Manifest, old: Manifest | None) -> None:  # noqa: ARG001
    written = new.pop("stringData", None)
    if written:
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in written.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


_CONDITIONED = {**OPEN, "properties": {"conditions": merged(OPEN, "type")}}
_NODE_STATUS = {**OPEN, "properties": {"conditions": merged(OPEN, "type"), "addresses": merged(OPEN, "type")}}
_PORT = fields(
    port=NUMBER,
    nodePort=NUMBER,
    targetPort=EITHER,
    protocol={**choice("TCP", "UDP", "SCTP"), "default": "TCP"},
    **texts("name", "appProtocol"),
)
_SERVICE = fields(
    **texts("clusterIP", "type", "sessionAffinity", "externalName", "externalTrafficPolicy", "internalTrafficPolicy"),
    **texts("ipFamilyPolicy", "loadBalancerIP", "loadBalancerClass", "trafficDistribution"),
    selector=mapping(TEXT),
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
_MOMENT = {**kept(TEXT), "nullable": True, "default": None}
_EVENT = {
    **texts("reason", "message", "type", "action"),
    **dict.fromkeys(("eventTime", "firstTimestamp", "lastTimestamp"), _MOMENT),
    "reportingComponent": {**kept(TEXT), "default": ""},
    "reportingInstance": {**kept(TEXT), "default": ""},
    "count": NUMBER,
    "source": {**kept(OPEN), "default": {}},
    "series": OPEN,
    "involvedObject": fields(**texts("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")),
    "related": OPEN,
}
_LEASE = fields(
    **texts("holderIdentity", "acquireTime", "renewTime", "strategy", "preferredHolder"),
    leaseDurationSeconds=NUMBER,
    leaseTransitions=NUMBER,
)
_SECRET_TYPE = {**TEXT, "default": "Opaque"}
_AGE = Column("Age", "date", ".metadata.creationTimestamp")


def first() -> list[tuple[Resource, Manifest]]:
    """The objects every cluster begins with, with their resources."""
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _FIRST_NAMESPACES]
    classes = [(PRIORITY_CLASSES, each) for each in priorities.first()]
    return [*((NAMESPACES, each) for each in namespaces), *classes]


def kinds() -> list[Kind]:
    """All of them."""
    return [*_workloads(), *_places(), *_contents(), *_rules()]


def _workloads() -> list[Kind]:
    return [
        Kind(
            resource=PODS,
            singular="pod",
            short_names=("po",),
            categories=("all",),
            schema=compile_schema(POD),
            subresources=frozenset({"status", "binding", "eviction", "log"}),
            shown_when_gone=True,
            admit=pod_rules.admit,
            selectable=_POD_FIELDS,
            generation=True,
            graceful=True,
            complete=pod_rules.complete,
            check=pod_rules.check,
            columns=(Column("Status", "string", ".status.phase"), _AGE),
        ),
        Kind(
            resource=SERVICES,
            singular="service",
            short_names=("svc",),
            categories=("all",),
            schema=_shape(spec=_SERVICE, status=_CONDITIONED),
            subresources=_STATUS,
            simple_names=True,
            complete=_begin_service,
            check=_check_service,
            upsert=True,
            shown_when_gone=True,
        ),
    ]


def _places() -> list[Kind]:
    return [
        Kind(
            resource=NODES,
            singular="node",
            short_names=("no",),
            schema=_shape(spec=OPEN, status=_NODE_STATUS),
            subresources=_STATUS,
            status_at_birth=True,
            selectable=("spec.unschedulable",),
        ),
        Kind(
            resource=NAMESPACES,
            singular="namespace",
            short_names=("ns",),
            schema=_shape(spec=OPEN, status=_CONDITIONED),
            subresources=_STATUS,
            selectable=("status.phase",),
            simple_names=True,
            complete=_begin_namespace,
            columns=(Column("Status", "string", ".status.phase"), _AGE),
        ),
    ]


def _contents() -> list[Kind]:
    return [
        Kind(
            resource=EVENTS,
            singular="event",
            short_names=("ev",),
            schema=_shape(**_EVENT),
            upsert=True,
            selectable=(*(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid")), "reason", "type"),
        ),
        Kind(
            resource=CONFIG_MAPS,
            singular="configmap",
            short_names=("cm",),
            schema=_shape(data=mapping(TEXT), binaryData=mapping(TEXT), immutable=FLAG),
            check=contents.check_config_map,
        ),
        Kind(
            resource=SECRETS,
            singular="secret",
            schema=_shape(**dict.fromkeys(("data", "stringData"), mapping(TEXT)), type=_SECRET_TYPE, immutable=FLAG),
            complete=_encode_secret,
            check=contents.check_secret,
            selectable=("type",),
        ),
        Kind(
            resource=SERVICE_ACCOUNTS,
            singular="serviceaccount",
            short_names=("sa",),
            shown_when_gone=True,
            schema=_shape(secrets=merged(OPEN, "name"), imagePullSecrets=many(OPEN), automountServiceAccountToken=FLAG),
        ),
    ]


def _rules() -> list[Kind]:
    return [
        Kind(
            resource=RESOURCE_QUOTAS,
            singular="resourcequota",
            short_names=("quota",),
            shown_when_gone=True,
            schema=_shape(spec=OPEN, status=OPEN),
            subresources=_STATUS,
        ),
        Kind(resource=LEASES, singular="lease", schema=_shape(spec={**_LEASE, "default": {}}), upsert=True),
        Kind(
            resource=PRIORITY_CLASSES,
            singular="priorityclass",
            short_names=("pc",),
            schema=_shape(
                value={**NUMBER, "default": 0},
                globalDefault=SWITCH,
                description=TEXT,
                preemptionPolicy={**choice("PreemptLowerPriority", "Never"), "default": "PreemptLowerPriority"},
            ),
            generation=True,
            check=priorities.check,
        ),
        Kind(
            resource=CRDS,
            singular="customresourcedefinition",
            short_names=("crd", "crds"),
            schema=_shape(spec={**OPEN, "properties": definitions.SPEC}, status=OPEN),
            subresources=_STATUS,
            generation=True,
            complete=definitions.complete,
            check=definitions.check,
        ),
    ]
