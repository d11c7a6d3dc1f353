"""The shape of a pod, as far as torchq's users write pods: which fields there are and of what type.

One rule: a field that is not listed does not exist, so that a typo is refused and not ignored. What is listed but
cannot be honoured is for the node to refuse.
"""

from typing import Any

from embedded.apiserver.kinds import metadata

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer", "format": "int64"}
INT: dict[str, Any] = {"type": "integer", "format": "int32"}
TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
MICRO: dict[str, Any] = {"type": "string", "format": "micro-time"}
MOMENT: dict[str, Any] = {**TIME, "x-kept": True, "nullable": True, "default": None}
"""A time that is null where there is none."""
BYTES: dict[str, Any] = {"type": "string", "format": "byte"}
FLAG: dict[str, Any] = {"type": "boolean"}
SWITCH: dict[str, Any] = {"type": "boolean", "x-dropped": True}
"""A flag that is left away when it is false."""
OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
EITHER: dict[str, Any] = {"x-kubernetes-int-or-string": True}
QUANTITY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True, "format": "quantity"}
"""A string, an integer or a decimal."""


def fields(**properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {"type": "object", "properties": properties}


def kept(schema: dict[str, Any]) -> dict[str, Any]:
    """The same, kept when it is empty."""
    return {**schema, "x-kept": True}


def needing(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    """The same, with fields that must be there."""
    return {**schema, "required": list(names)}


def many(items: dict[str, Any]) -> dict[str, Any]:
    """A list."""
    return {"type": "array", "items": items}


def merged(items: dict[str, Any], key: str = "") -> dict[str, Any]:
    """A list that a strategic merge patch merges, by a field of its items; without one, a set of plain values."""
    found = {**many(items), "x-kubernetes-patch-strategy": "merge"}
    return {**found, "x-kubernetes-patch-merge-key": key} if key else found


def mapping(values: dict[str, Any]) -> dict[str, Any]:
    """A map from names to values."""
    return {"type": "object", "additionalProperties": values}


def atomic(schema: dict[str, Any]) -> dict[str, Any]:
    """The same map, of which server-side apply sees no parts."""
    return {**schema, "x-kubernetes-map-type": "atomic"}


def choice(*words: str) -> dict[str, Any]:
    """One of these words."""
    return {"type": "string", "enum": list(words)}


def texts(*names: str) -> dict[str, dict[str, Any]]:
    """Several fields that are strings."""
    return dict.fromkeys(names, TEXT)


_CONDITION = fields(
    **texts("type", "status", "reason", "message"),
    lastTransitionTime=MOMENT,
    observedGeneration={**NUMBER, "x-dropped": True},
)
CONDITIONS = merged(_CONDITION, "type")
"""Of namespaces and services."""
_PROBED = {**_CONDITION, "properties": {**_CONDITION["properties"], "lastProbeTime": MOMENT}}
RESOURCES = fields(limits=mapping(QUANTITY), requests=mapping(QUANTITY), claims=many(OPEN))
_REFERENCE = atomic(fields(**texts("name", "key"), optional=FLAG))
_FIELDS: dict[str, dict[str, Any]] = {
    "fieldRef": atomic(needing(fields(apiVersion={**TEXT, "default": "v1"}, fieldPath=TEXT), "fieldPath")),
    "resourceFieldRef": atomic(needing(fields(**texts("containerName", "resource"), divisor=QUANTITY), "resource")),
}
_SOURCE = fields(
    **_FIELDS,
    configMapKeyRef=needing(_REFERENCE, "key"),
    secretKeyRef=needing(_REFERENCE, "key"),
    fileKeyRef=OPEN,
)
_ENV = needing(fields(**texts("name", "value"), valueFrom=_SOURCE), "name")
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
_HTTP = kept({**OPEN, "properties": {"scheme": {**TEXT, "default": "HTTP"}, "path": {**TEXT, "default": "/"}}})
_SECONDS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_TIMES = {name: {**NUMBER, "default": value} for name, value in _SECONDS.items()}
_PROBE = kept({**OPEN, "properties": {"httpGet": _HTTP, **_TIMES}})
_PROBES = {
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _PROBE),
    **dict.fromkeys(("lifecycle", "securityContext"), kept(OPEN)),
}
CONTAINER = fields(
    name=kept(TEXT),
    **texts("image", "workingDir"),
    imagePullPolicy=choice("Always", "IfNotPresent", "Never"),
    terminationMessagePath={**TEXT, "default": "/dev/termination-log"},
    terminationMessagePolicy={**choice("File", "FallbackToLogsOnError"), "default": "File"},
    command=many(TEXT),
    args=many(TEXT),
    env=merged(_ENV, "name"),
    envFrom=many(fields(prefix=TEXT, configMapRef=_REFERENCE, secretRef=_REFERENCE)),
    ports=merged(needing(_PORT, "containerPort"), "containerPort"),
    resources={**RESOURCES, "default": {}},
    resizePolicy=many(OPEN),
    restartPolicy=choice("Always", "OnFailure", "Never"),
    restartPolicyRules=many(OPEN),
    volumeMounts=merged(needing(_MOUNT, "name", "mountPath"), "mountPath"),
    volumeDevices=merged(OPEN, "devicePath"),
    stdin=SWITCH,
    stdinOnce=SWITCH,
    tty=SWITCH,
    **_PROBES,
)
_MODE = {**NUMBER, "default": 420}
_SOURCES: dict[str, dict[str, Any]] = {
    "emptyDir": {},
    "hostPath": {"path": kept(TEXT), "type": {**kept(TEXT), "default": ""}},
    "configMap": {"name": TEXT, "defaultMode": _MODE},
    "secret": {"secretName": TEXT, "defaultMode": _MODE},
    "downwardAPI": {"defaultMode": _MODE, "items": many(needing(fields(path=TEXT, mode=NUMBER, **_FIELDS), "path"))},
    "projected": {"defaultMode": _MODE},
}
_VOLUME = {**OPEN, "properties": {"name": kept(TEXT), **{
    name: kept({**OPEN, "properties": properties}) for name, properties in _SOURCES.items()
}}}  # fmt: skip
SPEC = fields(
    containers=merged(CONTAINER, "name"),
    initContainers=merged(CONTAINER, "name"),
    ephemeralContainers=merged(OPEN, "name"),
    volumes={**merged(_VOLUME, "name"), "x-kubernetes-patch-strategy": "merge,retainKeys"},
    restartPolicy={**choice("Always", "OnFailure", "Never"), "default": "Always"},
    terminationGracePeriodSeconds={**NUMBER, "default": 30},
    schedulerName={**TEXT, "default": "default-scheduler"},
    dnsPolicy={**choice("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"), "default": "ClusterFirst"},
    activeDeadlineSeconds=NUMBER,
    priority=NUMBER,
    nodeSelector=atomic(mapping(TEXT)),
    overhead=mapping(QUANTITY),
    tolerations=many(OPEN),
    hostAliases=merged(OPEN, "ip"),
    imagePullSecrets=merged(OPEN, "name"),
    topologySpreadConstraints=merged(OPEN, "topologyKey"),
    readinessGates=many(OPEN),
    schedulingGates=merged(OPEN, "name"),
    resourceClaims={**merged(OPEN, "name"), "x-kubernetes-patch-strategy": "merge,retainKeys"},
    resources=RESOURCES,
    affinity=kept(OPEN),
    dnsConfig=OPEN,
    os=OPEN,
    workloadRef=OPEN,
    securityContext={**kept(OPEN), "default": {}},
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
        **dict.fromkeys(_STATES, many(OPEN)),
        **dict.fromkeys(("extendedResourceClaimStatus", "resources", "allocatedResources"), OPEN),
        "observedGeneration": NUMBER,
        "conditions": merged(_PROBED, "type"),
        "podIPs": merged(OPEN, "ip"),
        "hostIPs": merged(OPEN, "ip"),
    },
}
POD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": metadata.SCHEMA,
        "spec": {**SPEC, "default": {}},
        "status": STATUS,
    },
}
