"""The built-in resources, which need no CRD.

One rule: a table; a schema lists the fields that torchq and its users write, and leaves other parts open.
"""

import base64
from typing import Any

from crds.api_resources import (
    CONFIG_MAPS,
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from embedded.apiserver.kinds import (
    config_data,
    custom_resources,
    leases_and_events,
    nodes_and_namespaces,
    object_meta,
    pod_rules,
    pod_vetting,
    priority_classes,
    services,
)
from embedded.apiserver.kinds.catalog import Column, Kind
from embedded.apiserver.kinds.pod_schema import (
    BYTES,
    FLAG,
    NUMBER,
    OPEN,
    POD,
    SWITCH,
    TEXT,
    choice,
    fields,
    list_of,
    map_of,
    merge_list,
)
from embedded.apiserver.schema.schema import compile_schema
from kube.api import Manifest

_OBJECT = {"apiVersion": TEXT, "kind": TEXT, "metadata": object_meta.SCHEMA}
_POD_FIELDS = (
    *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    *("status.phase", "status.podIP", "status.nominatedNodeName"),
)
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = (*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "source", "type")
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_STATUS = frozenset({"status"})


def _shape(**properties: dict[str, Any]) -> Any:
    return compile_schema(fields(**_OBJECT, **properties))


def _encode_secret(new: Manifest, old: Manifest | None) -> None:  # noqa: ARG001
    written = new.pop("stringData", None)
    if written:
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in written.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


_SECRET_TYPE = {**TEXT, "default": "Opaque"}
_AGE = Column("Age", "date", ".metadata.creationTimestamp")


def initial_objects() -> list[tuple[Resource, Manifest]]:
    """Return the objects of a new cluster, each with its resource."""
    namespaces = ((NAMESPACES, NAMESPACES.manifest({"name": name})) for name in _FIRST_NAMESPACES)
    return [*namespaces, *((PRIORITY_CLASSES, each) for each in priority_classes.initial_classes())]


KINDS = (
    Kind(
        resource=PODS,
        metadata_checks=4,
        singular="pod",
        short_names=("po",),
        categories=("all",),
        schema=compile_schema(POD),
        subresources=frozenset({"status", "binding", "eviction", "log"}),
        returns_deleted_object=True,
        admit=priority_classes.admit,
        selectable=_POD_FIELDS,
        generation=True,
        graceful=True,
        complete=pod_rules.complete,
        check=pod_rules.check,
        vet=pod_vetting.vet,
        columns=(Column("Status", "string", ".status.phase"), _AGE),
    ),
    Kind(
        resource=SERVICES,
        singular="service",
        short_names=("svc",),
        categories=("all",),
        schema=_shape(spec=services.SPEC, status=services.STATUS),
        subresources=_STATUS,
        simple_names=True,
        complete=services.complete,
        check=services.check,
        selectable=("spec.clusterIP", "spec.type"),
        create_on_update=True,
        returns_deleted_object=True,
    ),
    Kind(
        resource=NODES,
        metadata_checks=4,
        singular="node",
        short_names=("no",),
        schema=_shape(
            spec={**nodes_and_namespaces.NODE, "default": {}},
            status={**nodes_and_namespaces.NODE_STATUS, "default": {}},
        ),
        subresources=_STATUS,
        keeps_initial_status=True,
        selectable=("spec.unschedulable",),
        complete=nodes_and_namespaces.complete_node,
        check=nodes_and_namespaces.check_node,
    ),
    Kind(
        resource=NAMESPACES,
        metadata_checks=4,
        singular="namespace",
        short_names=("ns",),
        schema=_shape(spec=nodes_and_namespaces.NAMESPACE, status=nodes_and_namespaces.NAMESPACE_STATUS),
        subresources=_STATUS,
        selectable=("status.phase",),
        simple_names=True,
        complete=nodes_and_namespaces.complete_namespace,
        check=nodes_and_namespaces.check_namespace,
        columns=(Column("Status", "string", ".status.phase"), _AGE),
    ),
    Kind(
        resource=EVENTS,
        metadata_checks=2,
        singular="event",
        short_names=("ev",),
        schema=_shape(**leases_and_events.EVENT),
        check=leases_and_events.check_event,
        create_on_update=True,
        selectable=_EVENT_FIELDS,
    ),
    Kind(
        resource=CONFIG_MAPS,
        metadata_checks=4,
        singular="configmap",
        short_names=("cm",),
        schema=_shape(data=map_of(TEXT), binaryData=map_of(BYTES), immutable=FLAG),
        check=config_data.check_config_map,
    ),
    Kind(
        resource=SECRETS,
        metadata_checks=4,
        singular="secret",
        schema=_shape(data=map_of(BYTES), stringData=map_of(TEXT), type=_SECRET_TYPE, immutable=FLAG),
        complete=_encode_secret,
        check=config_data.check_secret,
        selectable=("type",),
    ),
    Kind(
        resource=SERVICE_ACCOUNTS,
        metadata_checks=4,
        singular="serviceaccount",
        short_names=("sa",),
        returns_deleted_object=True,
        schema=_shape(
            secrets=merge_list(OPEN, "name"), imagePullSecrets=list_of(OPEN), automountServiceAccountToken=FLAG
        ),
    ),
    Kind(
        resource=RESOURCE_QUOTAS,
        singular="resourcequota",
        short_names=("quota",),
        returns_deleted_object=True,
        schema=_shape(spec=OPEN, status=OPEN),
        subresources=_STATUS,
    ),
    Kind(
        resource=LEASES,
        requires_version=True,
        singular="lease",
        schema=_shape(spec={**leases_and_events.LEASE, "default": {}}),
        create_on_update=True,
        check=leases_and_events.check_lease,
    ),
    Kind(
        resource=PRIORITY_CLASSES,
        counts_generation=False,
        singular="priorityclass",
        short_names=("pc",),
        schema=_shape(
            value={**NUMBER, "default": 0},
            globalDefault=SWITCH,
            description=TEXT,
            preemptionPolicy={**choice("PreemptLowerPriority", "Never"), "default": "PreemptLowerPriority"},
        ),
        generation=True,
        check=priority_classes.check,
    ),
    Kind(
        resource=CRDS,
        singular="customresourcedefinition",
        short_names=("crd", "crds"),
        schema=_shape(spec={**OPEN, "properties": custom_resources.SPEC}, status=OPEN),
        subresources=_STATUS,
        generation=True,
        complete=custom_resources.complete,
        check=custom_resources.check,
    ),
)
"""All built-in kinds."""
