"""The CustomResourceDefinitions of the API types.

One rule: the definitions are generated from the models, the rules and the field table; `crds/manifests/` holds the
result as YAML.
"""

import itertools
from typing import Any

from pydantic import BaseModel

from crds import scale_request
from crds.api_resources import MODEL_VERSIONS, SCALE_INS, SCALE_OUTS, TENANT_QUEUES, TORCHJOBS, Resource
from crds.metadata import NamedMetadata
from crds.model_version import UNCHANGEABLE, ModelVersion, ModelVersionName
from crds.scale_request import ScaleIn, ScaleOut
from crds.schema import cel_rules, change_rules, structural
from crds.schema.structural import Schema
from crds.tenantqueue import QueueName, TenantQueue
from crds.torchjob.tasks import COUNTED_IN_BYTES, WORKER
from crds.torchjob.torchjob import JobName, TorchJob

WHOLE = {"x-kubernetes-map-type": "atomic"}
"""Marks a field that server-side apply treats as one value with one owner.

Every owned field costs space in the object and time at every change.
"""
AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    """Return a column of `kubectl get`; a wide column is shown only with `-o wide`."""
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": 1} if wide else {})


def torchjob() -> dict[str, Any]:
    """Return the CustomResourceDefinition of TorchJob."""
    root = _root(TorchJob, JobName, defaults=False)
    cel_rules.attach(root, "spec.torchTaskSpecs", cel_rules.task_map())
    cel_rules.attach(root, "spec.torchTaskSpecs.*", cel_rules.task())
    cel_rules.attach(root, "spec.torchElasticPolicy", cel_rules.elastic())
    cel_rules.attach(root, "spec.health.hangTimeoutSeconds", cel_rules.hang_timeout())
    for path in ("spec.nprocPerNode", "spec.torchElasticPolicy.nprocPerNode"):
        cel_rules.attach(root, path, cel_rules.nproc_per_node())
    cel_rules.attach(root, "spec", [*cel_rules.spec(), *cel_rules.worker_bounds()])
    cel_rules.attach(root, "", [*cel_rules.torchjob(), change_rules.transition(), change_rules.one_way()])
    pod = "spec.torchTaskSpecs.*.template.spec"
    for place, kind, name in itertools.product(
        (f"{pod}.containers.*", f"{pod}.initContainers.*", pod), ("requests", "limits"), COUNTED_IN_BYTES
    ):
        cel_rules.attach(root, f"{place}.resources.{kind}.{name}", cel_rules.bytes_of_container())
    structural.below(root, "spec.torchTaskSpecs.*.template").update(WHOLE)
    scale = {
        "specReplicasPath": f".spec.torchTaskSpecs.{WORKER}.numTasks",
        "statusReplicasPath": f".status.taskStatuses.{WORKER}.active",
        "labelSelectorPath": ".status.selector",
    }
    columns = [
        column("Phase", ".status.phase"),
        column("Queue", ".status.tenantQueue"),
        column("Workers", ".status.admission.workers", "integer"),
        column("Wanted", f".spec.torchTaskSpecs.{WORKER}.numTasks", "integer"),
        column("Attempt", ".status.attempt", "integer", wide=True),
        column("Restarts", ".status.restartCount", "integer", wide=True),
        *(
            column(kind, f'.status.conditions[?(@.type=="{kind}")].reason', wide=True)
            for kind in ("Admitted", "Running")
        ),
        AGE,
    ]
    return definition(TORCHJOBS, ["tj"], root, columns, {"status": {}, "scale": scale}, categories=["torchq"])


def tenant_queue() -> dict[str, Any]:
    """Return the CustomResourceDefinition of TenantQueue."""
    root = _root(TenantQueue, QueueName, defaults=True)
    cel_rules.attach(root, "spec.quota", cel_rules.quota())
    cel_rules.attach(root, "spec.borrowingLimit", cel_rules.quota())
    cel_rules.attach(root, "spec", cel_rules.tenant_queue())
    columns = [
        column("Weight", ".spec.weight", "integer"),
        column("Pending", ".status.pending", "integer"),
        column("Admitted", ".status.admitted", "integer"),
        column("Share", ".status.share", wide=True),
        column("Target", ".status.target", wide=True),
        column("Stop", ".spec.stopPolicy", wide=True),
        AGE,
    ]
    return definition(TENANT_QUEUES, ["tq"], root, columns, {"status": {}}, categories=["torchq"])


def scale_out() -> dict[str, Any]:
    """Return the CustomResourceDefinition of ScaleOut."""
    return _scale_request(SCALE_OUTS, "tso", ScaleOut)


def scale_in() -> dict[str, Any]:
    """Return the CustomResourceDefinition of ScaleIn."""
    return _scale_request(SCALE_INS, "tsi", ScaleIn)


def _scale_request(resource: Resource, short: str, model: type[BaseModel]) -> dict[str, Any]:
    root = _root(model, NamedMetadata, defaults=True)
    cel_rules.attach(root, "spec", cel_rules.unchangeable(scale_request.UNCHANGEABLE))
    columns = [
        column("Job", ".spec.selector.name"),
        column("From", ".status.from", "integer"),
        column("To", ".status.to", "integer"),
        column("Phase", ".status.phase"),
        column("Reason", ".status.reason", wide=True),
        AGE,
    ]
    return definition(resource, [short], root, columns, {"status": {}}, categories=["torchq"])


def model_version() -> dict[str, Any]:
    """Return the CustomResourceDefinition of ModelVersion."""
    root = _root(ModelVersion, ModelVersionName, defaults=False)
    cel_rules.attach(root, "spec", cel_rules.unchangeable(UNCHANGEABLE))
    columns = [
        column("Model", ".spec.modelName"),
        column("Version", ".spec.version"),
        column("Files", ".status.files", "integer"),
        column("Bytes", ".status.bytes", "integer"),
        column("Job", ".spec.createdBy"),
        column("Result", ".status.result"),
        column("Digest", ".status.digest", wide=True),
        column("Claim", ".spec.claimName", wide=True),
        column("Path", ".spec.path", wide=True),
        AGE,
    ]
    return definition(MODEL_VERSIONS, ["mv"], root, columns, {}, categories=["torchq"])


def _root(model: type[BaseModel], name: type[BaseModel], *, defaults: bool) -> Schema:
    """Return a root schema as the API server requires it.

    The schema may restrict only the name in metadata, and the status has no defaults.
    """
    spec = structural.schema(model, defaults=defaults)["properties"]["spec"]
    status = structural.schema(model, defaults=False)["properties"]["status"]
    return {
        "description": model.__doc__,
        "type": "object",
        "required": [] if "default" in spec else ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": structural.schema(name, defaults=False)["properties"]},
            "spec": spec,
            "status": status | WHOLE,
        },
    }


def definition(
    resource: Resource,
    short: list[str],
    root: Schema,
    columns: list[dict[str, Any]],
    subresources: dict[str, Any],
    **names: list[str],
) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind with one version; `names` are added to `spec.names`."""
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": subresources,
        "additionalPrinterColumns": columns,
    }
    base_names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "shortNames": short,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {**base_names, **names},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }
