"""Random objects for requests: valid objects of every served kind, and mutated objects such as a careless or hostile
client sends.

One rule: all randomness comes from the generator in the arguments, so a seed determines every object.
"""

# ruff: noqa: E501

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from crds import generate
from crds.api_resources import (
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    TENANT_QUEUES,
    TORCHJOBS,
    Resource,
)
from tests.support.kube.widgets import WIDGETS

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
Make = Callable[[random.Random], dict[str, Any]]
STRANGE: list[Any] = [
    None, "", "x", "ÿ☃", "a b", "-", "A" * 70, "a" * 300, 0, -1, 3, 1.5, 2.0, 2**31, 2**53 + 1, 2**63, 1e30, True, False,
    [], {}, [None], ["a"], [{}], {"a": "b"}, {"a": None}, "2026-01-01T00:00:00Z", "10", "1Gi", "true",
]  # fmt: skip
_JOBS, _QUEUES = (definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for definition in generate.load()[:2])


def _widget(r: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"size": r.randrange(0, 100)}
    extra = {"colour": "red", "mode": "slow", "code": "ABC", "port": "http", "when": "2026-01-01T00:00:00Z", "ratio": 1,
             "names": ["a", "b"], "parts": {"a": {"note": "n"}}, "loose": {"x": [1, {"y": None}]}, "limit": 100,
             "sealed": {"known": "k", "other": 1}}  # fmt: skip
    return {"spec": spec | {key: extra[key] for key in r.sample(sorted(extra), r.randrange(0, 4))}}


def _pod(r: random.Random) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": r.choice(["none", "a:latest", "a:1", "a/b@sha256:" + "0" * 64]),
    }
    extras: dict[str, Any] = {
        "resources": r.choice([{"limits": {"cpu": "1", "memory": "1Gi"}}, {"requests": {"cpu": "0.5"}}, {"limits": {"cpu": 2}}]),
        "env": [{"name": "A", "value": "b"}, {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"containerPort": 80}],
        "command": ["true"],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
        "securityContext": {"runAsUser": 1000},
        "imagePullPolicy": "Never",
    }  # fmt: skip
    for key in r.sample(sorted(extras), r.randrange(0, 4)):
        container[key] = extras[key]
    spec: dict[str, Any] = {"containers": [container]}
    if "volumeMounts" in container:
        source = r.choice([{"emptyDir": {}}, {"hostPath": {"path": "/tmp"}}, {"configMap": {"name": "c"}}, {}])
        spec["volumes"] = [{"name": "v", **source}]
    more: dict[str, Any] = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "nodeName": "n1", "hostNetwork": True,
                            "tolerations": [{"key": "a", "operator": "Exists"}], "nodeSelector": {"a": "b"},
                            "initContainers": [{"name": "init", "image": "i"}], "hostname": "h", "subdomain": "s",
                            "priorityClassName": r.choice(["system-node-critical", "nobody"]), "activeDeadlineSeconds": 10,
                            "schedulingGates": [{"name": "torchq.io/gate"}], "serviceAccountName": "sa"}  # fmt: skip
    for key in r.sample(sorted(more), r.choice([0, 0, 1, 2])):
        spec[key] = more[key]
    return {"spec": spec}


def _service(r: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"clusterIP": "None", "selector": {"a": "b"}}
    if r.random() < 0.6:
        spec["ports"] = [{"port": 80, **r.choice([{}, {"name": "p"}, {"targetPort": "web"}, {"protocol": "UDP"}])}]
    if r.random() < 0.2:
        spec["publishNotReadyAddresses"] = True
    return {"spec": spec}


def _node(r: random.Random) -> dict[str, Any]:
    status = {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "4"}}
    return r.choice([{}, {"spec": {"unschedulable": True}}, {"status": status}, {"spec": {"podCIDR": "10.1.0.0/24"}}])


def _lease(r: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"holderIdentity": "me", "leaseDurationSeconds": r.choice([8, 15]), "leaseTransitions": 1}
    return {"spec": spec | {"renewTime": "2026-01-01T00:00:00.000000Z", "acquireTime": "2026-01-01T00:00:00.123456Z"}}


def _event(r: random.Random) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "p", "namespace": "@ns", "apiVersion": "v1"}
    return {
        "involvedObject": about,
        "reason": "Why",
        "message": "m",
        "type": r.choice(["Normal", "Warning"]),
        "count": 1,
    }


def _config(r: random.Random) -> dict[str, Any]:
    return r.choice([{"data": {"a": "b"}}, {"binaryData": {"b": "YQ=="}}, {}, {"data": {"a": "ü"}, "immutable": True}])


def _secret(r: random.Random) -> dict[str, Any]:
    return r.choice([{"data": {"a": "YQ=="}}, {"stringData": {"a": "b"}}, {"type": "Opaque"}, {"type": "my/type"}, {}])


def _priority(r: random.Random) -> dict[str, Any]:
    return {
        "value": r.choice([0, 10, -5, 1000000000]),
        **r.choice([{}, {"description": "d"}, {"preemptionPolicy": "Never"}]),
    }


def _account(r: random.Random) -> dict[str, Any]:
    return r.choice([{}, {"automountServiceAccountToken": False}, {"imagePullSecrets": [{"name": "s"}]}])


def _definition(r: random.Random) -> dict[str, Any]:
    spec = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"spec": {"group": "diff.example.com", "scope": r.choice(["Namespaced", "Cluster"]), "versions": [version],
                     "names": {"plural": "@name", "kind": "Thing"}}}  # fmt: skip


def _job(r: random.Random) -> dict[str, Any]:
    if r.random() < 0.3:
        return {"spec": from_schema(r, _JOBS["properties"]["spec"])}
    template = {"spec": {"containers": [{"name": "torch", "image": "i", "command": ["true"]}]}}
    tasks: dict[str, Any] = {"Worker": {"numTasks": r.randrange(1, 4), "template": template}}
    if r.random() < 0.5:
        tasks["Master"] = {"template": template}
        tasks["Worker"]["dependsOn"] = [{"taskType": "Master", "phase": "Running"}]
    more = {"suspend": True, "backoffLimit": 3, "schedulingPolicy": {"queue": "q", "priority": 3}, "minMembers": {"Worker": 1},
            "torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 3}, "ttlSecondsAfterFinished": 60}  # fmt: skip
    return {"spec": {"torchTaskSpecs": tasks} | {key: more[key] for key in r.sample(sorted(more), r.randrange(0, 3))}}


def _queue(r: random.Random) -> dict[str, Any]:
    if r.random() < 0.4:
        return {"spec": from_schema(r, _QUEUES["properties"]["spec"])}
    return r.choice([{}, {"spec": {"weight": 5}}, {"spec": {"quota": {"cpu": 4, "memory": "1Gi"}}}])


MAKERS: dict[Resource, Make] = {
    WIDGETS: _widget, TORCHJOBS: _job, TENANT_QUEUES: _queue, PODS: _pod, SERVICES: _service, NODES: _node, LEASES: _lease,
    EVENTS: _event, CONFIG_MAPS: _config, SECRETS: _secret, SERVICE_ACCOUNTS: _account, PRIORITY_CLASSES: _priority,
    CRDS: _definition, NAMESPACES: lambda r: {},  # noqa: ARG005
}  # fmt: skip
SUBRESOURCES = {WIDGETS: ("status", "scale"), TORCHJOBS: ("status",), TENANT_QUEUES: ("status",), PODS: ("status",),
                SERVICES: ("status",), NODES: ("status",), NAMESPACES: ("status",), CRDS: ("status",)}  # fmt: skip


def make(r: random.Random, resource: Resource, name: str, namespace: str) -> dict[str, Any]:
    """Return an object with labels. An object is valid, but some objects that are generated from the schema are not."""
    text = json.dumps(MAKERS[resource](r)).replace("@name", name.split(".", maxsplit=1)[0]).replace("@ns", namespace)
    own: dict[str, Any] = {"name": name}
    if r.random() < 0.6:
        own["labels"] = {"app": r.choice("abc"), "tier": r.choice("xy")}
    if r.random() < 0.15:
        own["annotations"] = {"note": r.choice(["a", "ü", ""])}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": own, **json.loads(text)}


def from_schema(r: random.Random, schema: dict[str, Any], depth: int = 0) -> Any:
    """Return a value that the schema permits, and sometimes a value that it forbids."""
    if r.random() < 0.03:
        return copy.deepcopy(r.choice(STRANGE))
    if "enum" in schema:
        return r.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            return _object(r, schema, depth)
        case "array":
            count = r.randrange(schema.get("minItems", 0), 3)
            return [from_schema(r, schema["items"], depth + 1) for _ in range(max(count, schema.get("minItems", 0)))]
        case "integer":
            low, high = schema.get("minimum", -5), schema.get("maximum", 2**40)
            return r.choice(
                [low, high, low + 1, min(high, 7), r.choice([low - 1, high + 1]) if r.random() < 0.2 else low]
            )
        case "boolean":
            return r.random() < 0.5
        case "number":
            return r.choice([0.5, 1, -2.25])
        case _:
            return r.choice(
                ["Master", "worker", "a", "b-c", "1", "2Gi", 3 if "x-kubernetes-int-or-string" in schema else "q"]
            )


def _object(r: random.Random, schema: dict[str, Any], depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, child in (schema.get("properties") or {}).items():
        if (name in (schema.get("required") or ()) and r.random() < 0.97) or r.random() < 0.35:
            made[name] = from_schema(r, child, depth + 1)
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        keys = [
            "Master",
            "Worker",
            "AIMaster",
            "a",
            "A",
            "cpu",
            "requests.cpu",
            "memory",
            "pods",
            "jobs",
            "bad key",
            "ünï",
        ]
        for key in r.sample(keys, r.choice([0, 1, 1, 2, 3])):
            made[key] = from_schema(r, values, depth + 1)
    if "x-kubernetes-preserve-unknown-fields" in schema and r.random() < 0.3:
        made["unknown"] = copy.deepcopy(r.choice(STRANGE))
    return made


def spoiled(r: random.Random, body: dict[str, Any], protect: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a copy of the object with one value changed, removed or added."""
    body = copy.deepcopy(body)
    places = [place for place in _places(body) if place[1] not in protect]
    parent, key = r.choice(places)
    match r.randrange(4):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[r.choice(["unknown", "Kind", "naMe", "x-y", "ü"])] = copy.deepcopy(r.choice(STRANGE))
        case _:
            parent[key] = copy.deepcopy(r.choice(STRANGE))
    return body


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    steps = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, item in steps:
        found.append((value, key))
        found.extend(_places(item))
    return found
