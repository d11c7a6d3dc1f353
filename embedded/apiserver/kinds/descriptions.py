"""The descriptions in `kubectl explain` of the most important fields of built-in resources.

One rule: each description says what the field does on the embedded cluster, not on Kubernetes in general.
"""

from typing import Any

ROOT = {
    "apiVersion": "The API version of this object.",
    "kind": "The kind of this object.",
}

_CONTAINER = {
    "name": "The container's name, unique in its pod.",
    "image": "The image; it is stored and not pulled, since containers are processes of this machine.",
    "command": "The program and its first arguments; if absent, args are the whole command.",
    "args": "The arguments after the command.",
    "workingDir": "The working directory of the command; the default is the folder that the job was submitted from.",
    "env": "The environment variables of the command, in order; a variable may refer to an earlier one as $(NAME).",
    "envFrom": "The ConfigMaps and Secrets whose keys become environment variables.",
    "ports": "The ports that the container listens on; the node reserves each hostPort for it.",
    "resources": "The resources that the container needs (requests) and may use at most (limits).",
    "volumeMounts": "The paths at which the pod's volumes are mounted.",
    "restartPolicy": "For an init container, Always makes it a sidecar, which runs beside the other containers.",
}

KINDS: dict[str, dict[str, str]] = {
    "Pod": {
        "": "Containers that run together on one node.",
        "spec": "The desired state of the pod.",
        "status": "The observed state of the pod, which the node writes.",
        "spec.containers": "The containers that run at the same time.",
        "spec.initContainers": "The containers that run one by one before the others, each until it succeeds.",
        "spec.volumes": "The folders that the containers may share.",
        "spec.restartPolicy": "When the node restarts containers that have ended: Always, OnFailure or Never.",
        "spec.terminationGracePeriodSeconds": "The seconds between SIGTERM and SIGKILL when the pod is deleted.",
        "spec.activeDeadlineSeconds": "The seconds after which a running pod fails.",
        "spec.nodeName": "The node the pod is bound to; filled in by the scheduler.",
        "spec.nodeSelector": "The labels that the node must have.",
        "spec.schedulerName": "The scheduler that binds the pod to a node.",
        "spec.schedulingGates": "The gates of the pod; it is not scheduled until all of them are removed.",
        "spec.tolerations": "The taints of nodes that this pod tolerates.",
        "spec.hostNetwork": "Whether the pod uses the network of the machine.",
        **{f"spec.containers.{name}": text for name, text in _CONTAINER.items()},
        **{f"spec.initContainers.{name}": text for name, text in _CONTAINER.items()},
    },
    "Service": {
        "": "A name for a set of pods. On the embedded cluster, which has one machine, every service is headless.",
        "spec.selector": "The labels of the pods of the service.",
        "spec.ports": "The ports of the service.",
        "spec.clusterIP": "The address of the service; None, since the embedded cluster has no virtual addresses.",
    },
    "Node": {
        "": "A machine that runs pods.",
        "spec.unschedulable": "Whether the scheduler binds no further pods to this node (`kubectl cordon`).",
        "status.allocatable": "The resources that all pods together may request.",
    },
    "Namespace": {"": "A scope for names; its deletion deletes all objects in it."},
    "Event": {"": "A report of an event that concerns an object."},
    "ConfigMap": {
        "": "Configuration data for pods.",
        "data": "The texts, by key.",
        "binaryData": "The bytes, by key, in base64.",
        "immutable": "Whether the data can no longer be changed.",
    },
    "Secret": {
        "": "Confidential data for pods; the embedded cluster does not encrypt it on disk.",
        "data": "The bytes, by key, in base64.",
        "stringData": "The texts, by key; they are stored in data.",
        "type": "The type of the secret, which determines the required keys.",
    },
    "ServiceAccount": {"": "An identity for pods; the embedded cluster stores it and does not enforce it."},
    "ResourceQuota": {"": "Limits of a namespace; the embedded cluster stores them and does not enforce them."},
    "Lease": {"": "The holder of a role, and the time until which it holds the role."},
    "PriorityClass": {
        "": "A named priority of pods.",
        "value": "The priority; pods with a higher value are scheduled first.",
    },
    "CustomResourceDefinition": {
        "": "The definition of a custom resource, which is served as soon as this object exists."
    },
}


def describe(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a published schema with the descriptions of its kind."""
    for path, text in KINDS.get(kind, {}).items():
        _describe(schema, [step for step in path.split(".") if step], text)
    return schema


def _describe(schema: dict[str, Any], path: list[str], text: str) -> None:
    while "items" in schema and path:
        schema = schema["items"]
    if not path:
        schema["description"] = text
    elif path[0] in (schema.get("properties") or {}):
        _describe(schema["properties"][path[0]], path[1:], text)
