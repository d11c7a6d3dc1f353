"""The schema of a pod, and the functions that build schemas of built-in resources.

One rule: a field that is not listed does not exist, so that a typo is refused and not ignored. A pod with a
listed field that the embedded node does not support is refused by the node.
"""

from typing import Any

from embedded.apiserver.kinds import object_meta

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer", "format": "int64"}
INT: dict[str, Any] = {"type": "integer", "format": "int32"}
TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
MICRO: dict[str, Any] = {"type": "string", "format": "micro-time"}
MOMENT: dict[str, Any] = {**TIME, "x-kept": True, "nullable": True, "default": None}
"""A time that is null if it is not set."""
BYTES: dict[str, Any] = {"type": "string", "format": "byte"}
FLAG: dict[str, Any] = {"type": "boolean"}
SWITCH: dict[str, Any] = {"type": "boolean", "x-dropped": True}
"""A flag that is left out when it is false."""
OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
EITHER: dict[str, Any] = {"x-kubernetes-int-or-string": True}
QUANTITY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True, "format": "quantity"}
"""A quantity: a string, an integer or a decimal."""


def fields(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these fields and no other fields."""
    return {"type": "object", "properties": properties}


def keep_empty(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that is stored even if it is empty."""
    return {**schema, "x-kept": True}


def require(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the schema with required fields."""
    return {**schema, "required": list(names)}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def merge_list(items: dict[str, Any], key: str = "") -> dict[str, Any]:
    """Return the schema of a list that a strategic merge patch merges by a key of its items.

    Without a key, the list is a set of plain values.
    """
    list_schema = {**list_of(items), "x-kubernetes-patch-strategy": "merge"}
    return {**list_schema, "x-kubernetes-patch-merge-key": key} if key else list_schema


def map_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a map from names to values."""
    return {"type": "object", "additionalProperties": values}


def atomic(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a map that server-side apply treats as one field."""
    return {**schema, "x-kubernetes-map-type": "atomic"}


def choice(*values: str) -> dict[str, Any]:
    """Return the schema of a string with one of these values."""
    return {"type": "string", "enum": list(values)}


def texts(*names: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of several string fields, by name."""
    return dict.fromkeys(names, TEXT)


_CONDITION = fields(
    **texts("type", "status", "reason", "message"),
    lastTransitionTime=MOMENT,
    observedGeneration={**NUMBER, "x-dropped": True},
)
CONDITIONS = merge_list(_CONDITION, "type")
"""The conditions of namespaces and services."""
_PROBED = {**_CONDITION, "properties": {**_CONDITION["properties"], "lastProbeTime": MOMENT}}
RESOURCES = fields(limits=map_of(QUANTITY), requests=map_of(QUANTITY), claims=list_of(OPEN))
_REFERENCE = atomic(fields(**texts("name", "key"), optional=FLAG))
_FIELDS: dict[str, dict[str, Any]] = {
    "fieldRef": atomic(require(fields(apiVersion={**TEXT, "default": "v1"}, fieldPath=TEXT), "fieldPath")),
    "resourceFieldRef": atomic(require(fields(**texts("containerName", "resource"), divisor=QUANTITY), "resource")),
}
_SOURCE = fields(
    **_FIELDS,
    configMapKeyRef=require(_REFERENCE, "key"),
    secretKeyRef=require(_REFERENCE, "key"),
    fileKeyRef=OPEN,
)
_ENV = require(fields(**texts("name", "value"), valueFrom=_SOURCE), "name")
_PORT = fields(
    containerPort=NUMBER,
    hostPort={**NUMBER, "x-dropped": True},
    protocol={**choice("SCTP", "TCP", "UDP"), "default": "TCP"},
    **texts("name", "hostIP"),
)
_MOUNT = fields(
    **texts("name", "mountPath", "subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly"),
    readOnly=SWITCH,
)
_HTTP = keep_empty({**OPEN, "properties": {"scheme": {**TEXT, "default": "HTTP"}, "path": {**TEXT, "default": "/"}}})
_SECONDS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_TIMES = {name: {**NUMBER, "default": value} for name, value in _SECONDS.items()}
_PROBE = keep_empty({**OPEN, "properties": {"httpGet": _HTTP, **_TIMES}})
_PROBES = {
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _PROBE),
    **dict.fromkeys(("lifecycle", "securityContext"), keep_empty(OPEN)),
}
CONTAINER = fields(
    name=keep_empty(TEXT),
    **texts("image", "workingDir"),
    imagePullPolicy=choice("Always", "IfNotPresent", "Never"),
    terminationMessagePath={**TEXT, "default": "/dev/termination-log"},
    terminationMessagePolicy={**choice("File", "FallbackToLogsOnError"), "default": "File"},
    command=list_of(TEXT),
    args=list_of(TEXT),
    env=merge_list(_ENV, "name"),
    envFrom=list_of(fields(prefix=TEXT, configMapRef=_REFERENCE, secretRef=_REFERENCE)),
    ports=merge_list(require(_PORT, "containerPort"), "containerPort"),
    resources={**RESOURCES, "default": {}},
    resizePolicy=list_of(OPEN),
    restartPolicy=choice("Always", "OnFailure", "Never"),
    restartPolicyRules=list_of(OPEN),
    volumeMounts=merge_list(require(_MOUNT, "name", "mountPath"), "mountPath"),
    volumeDevices=merge_list(OPEN, "devicePath"),
    stdin=SWITCH,
    stdinOnce=SWITCH,
    tty=SWITCH,
    **_PROBES,
)
_MODE = {**NUMBER, "default": 420}
_ITEMS = list_of(fields(**texts("key", "path"), mode=INT))
_CLOSED = {
    "configMap": fields(name=TEXT, defaultMode=_MODE, optional=FLAG, items=_ITEMS),
    "secret": fields(secretName=TEXT, defaultMode=_MODE, optional=FLAG, items=_ITEMS),
}
"""The sources of volumes of which all fields are known."""
_SOURCES: dict[str, dict[str, Any]] = {
    "emptyDir": {},
    "hostPath": {"path": keep_empty(TEXT), "type": {**keep_empty(TEXT), "default": ""}},
    "downwardAPI": {"defaultMode": _MODE, "items": list_of(require(fields(path=TEXT, mode=NUMBER, **_FIELDS), "path"))},
    "projected": {"defaultMode": _MODE},
}
_VOLUME = {**OPEN, "properties": {"name": keep_empty(TEXT), **{
    name: keep_empty({**OPEN, "properties": properties}) for name, properties in _SOURCES.items()
}, **{name: keep_empty(source) for name, source in _CLOSED.items()}}}  # fmt: skip
SPEC = fields(
    containers=merge_list(CONTAINER, "name"),
    initContainers=merge_list(CONTAINER, "name"),
    ephemeralContainers=merge_list(OPEN, "name"),
    volumes={**merge_list(_VOLUME, "name"), "x-kubernetes-patch-strategy": "merge,retainKeys"},
    restartPolicy={**choice("Always", "OnFailure", "Never"), "default": "Always"},
    terminationGracePeriodSeconds={**NUMBER, "default": 30},
    schedulerName={**TEXT, "default": "default-scheduler"},
    dnsPolicy={**choice("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"), "default": "ClusterFirst"},
    activeDeadlineSeconds=NUMBER,
    priority=NUMBER,
    nodeSelector=atomic(map_of(TEXT)),
    overhead=map_of(QUANTITY),
    tolerations=list_of(OPEN),
    hostAliases=merge_list(OPEN, "ip"),
    imagePullSecrets=merge_list(OPEN, "name"),
    topologySpreadConstraints=merge_list(OPEN, "topologyKey"),
    readinessGates=list_of(OPEN),
    schedulingGates=merge_list(OPEN, "name"),
    resourceClaims={**merge_list(OPEN, "name"), "x-kubernetes-patch-strategy": "merge,retainKeys"},
    resources=RESOURCES,
    affinity=keep_empty(OPEN),
    dnsConfig=OPEN,
    os=OPEN,
    workloadRef=OPEN,
    securityContext={**keep_empty(OPEN), "default": {}},
    enableServiceLinks={**FLAG, "default": True},
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), SWITCH),
    **dict.fromkeys(("hostUsers", "shareProcessNamespace", "setHostnameAsFQDN", "automountServiceAccountToken"), FLAG),
    **texts("nodeName", "hostname", "hostnameOverride", "subdomain", "priorityClassName", "preemptionPolicy"),
    **texts("runtimeClassName", "serviceAccountName", "serviceAccount"),
)
_STATES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses", "resourceClaimStatuses")
STATUS = {
    "type": "object",
    "properties": {
        **texts("phase", "message", "reason", "nominatedNodeName", "hostIP", "podIP", "qosClass", "resize"),
        "startTime": TIME,
        **dict.fromkeys(_STATES, list_of(OPEN)),
        **dict.fromkeys(("extendedResourceClaimStatus", "resources", "allocatedResources"), OPEN),
        "observedGeneration": NUMBER,
        "conditions": merge_list(_PROBED, "type"),
        "podIPs": merge_list(OPEN, "ip"),
        "hostIPs": merge_list(OPEN, "ip"),
    },
}
POD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": object_meta.SCHEMA,
        "spec": {**SPEC, "default": {}},
        "status": STATUS,
    },
}
