"""What `kubectl explain` says of the built-in resources: one sentence for each of the fields people ask about.

One rule: our own words, about what a field does on the embedded cluster.
"""

from typing import Any

ROOT = {
    "apiVersion": "The version of the schema that this object is written in.",
    "kind": "The resource that this object is one of.",
}

_CONTAINER = {
    "name": "The container's name, unique in its pod.",
    "image": "Recorded; on the embedded cluster nothing is pulled, containers are processes of this machine.",
    "command": "The program and its first arguments; without it, args are the whole command.",
    "args": "Arguments after the command.",
    "workingDir": "The folder the command begins in; by default where the job was submitted.",
    "env": "Variables of the command's environment, in order: later ones may use $(EARLIER).",
    "envFrom": "ConfigMaps and Secrets whose keys become variables.",
    "ports": "Ports the container listens on; a hostPort is reserved for it.",
    "resources": "What the container needs (requests) and may use at most (limits).",
    "volumeMounts": "Where the pod's volumes are to be seen.",
    "restartPolicy": "Of an init container: Always makes it a sidecar, which runs beside the others.",
}

KINDS: dict[str, dict[str, str]] = {
    "Pod": {
        "": "Containers that run together on one node.",
        "spec": "What is to run, and how.",
        "status": "What has become of it; written by the node.",
        "spec.containers": "The containers that run at the same time.",
        "spec.initContainers": "Containers that run before the others, one after the other, each to its success.",
        "spec.volumes": "Folders that the containers may share.",
        "spec.restartPolicy": "Whether containers that end are started again: Always, OnFailure or Never.",
        "spec.terminationGracePeriodSeconds": "Seconds between SIGTERM and SIGKILL when the pod is deleted.",
        "spec.activeDeadlineSeconds": "Seconds after which a pod that still runs has failed.",
        "spec.nodeName": "The node the pod is bound to; filled in by the scheduler.",
        "spec.nodeSelector": "Labels that the node must have.",
        "spec.schedulerName": "Who places the pod.",
        "spec.schedulingGates": "While there are any, the pod is not placed.",
        "spec.tolerations": "Taints of nodes that do not matter to this pod.",
        "spec.hostNetwork": "Use the machine's own network.",
        **{f"spec.containers.{name}": text for name, text in _CONTAINER.items()},
        **{f"spec.initContainers.{name}": text for name, text in _CONTAINER.items()},
    },
    "Service": {
        "": "A name for a set of pods. On the embedded cluster every service is headless: there is one machine.",
        "spec.selector": "Labels of the pods that the service is about.",
        "spec.ports": "Ports of the service.",
        "spec.clusterIP": "None: no virtual addresses are made.",
    },
    "Node": {
        "": "A machine that runs pods.",
        "spec.unschedulable": "No further pods are placed on this node (`kubectl cordon`).",
        "status.allocatable": "What pods may use in all.",
    },
    "Namespace": {"": "A room for names; deleting it deletes what is in it."},
    "Event": {"": "Something that happened to an object."},
    "ConfigMap": {
        "": "Settings for pods.",
        "data": "Texts by key.",
        "binaryData": "Bytes by key, in base64.",
        "immutable": "The content can no longer be changed.",
    },
    "Secret": {
        "": "Settings for pods that are not for everybody's eyes; on disk they are not encrypted.",
        "data": "Bytes by key, in base64.",
        "stringData": "Texts by key; they are stored in data.",
        "type": "What the secret is for.",
    },
    "ServiceAccount": {"": "An identity for pods; recorded, and not enforced by the embedded cluster."},
    "ResourceQuota": {"": "Limits of a namespace; recorded, and not enforced by the embedded cluster."},
    "Lease": {"": "Who is in charge of something, and until when."},
    "PriorityClass": {"": "A name for a priority of pods.", "value": "The priority; higher goes first."},
    "CustomResourceDefinition": {"": "A resource that users define; it is served as soon as this object is there."},
}


def described(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """A published schema with the sentences of its kind."""
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
