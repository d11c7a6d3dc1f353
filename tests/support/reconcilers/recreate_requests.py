"""OpenKruise's ContainerRecreateRequest with a definition as strict as the original, and the actions of its controller
and daemon."""

import contextlib
from dataclasses import replace
from typing import Any

from crds.api_resources import CRDS, RECREATE_REQUESTS
from kube import errors
from kube.client import KubernetesCluster
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from tests.support.reconcilers.builders import KEY, NOW

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "format": "int64"}
_STRATEGY = {
    "type": "object",
    "properties": {
        "failurePolicy": {"type": "string", "enum": ["Fail", "Ignore"]},
        "orderedRecreate": {"type": "boolean"},
        "forceRecreate": {"type": "boolean"},
        "terminationGracePeriodSeconds": _NUMBER,
        "unreadyGracePeriodSeconds": _NUMBER,
        "minStartedSeconds": {"type": "integer", "format": "int32"},
    },
}
_SPEC = {
    "type": "object",
    "required": ["containers", "podName"],
    "properties": {
        "podName": _TEXT,
        "containers": {
            "type": "array",
            "items": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}},
        },
        "strategy": _STRATEGY,
        "activeDeadlineSeconds": _NUMBER | {"minimum": 3},
        "ttlSecondsAfterFinished": {"type": "integer", "format": "int32"},
    },
}
_STATE = {"type": "object", "properties": {"name": _TEXT, "phase": _TEXT, "message": _TEXT}}
_STATUS = {
    "type": "object",
    "properties": {
        "phase": _TEXT,
        "message": _TEXT,
        "containerRecreateStates": {"type": "array", "items": _STATE},
    },
}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "containerrecreaterequests.apps.kruise.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "apps.kruise.io",
        "names": {
            "kind": "ContainerRecreateRequest",
            "listKind": "ContainerRecreateRequestList",
            "plural": "containerrecreaterequests",
            "singular": "containerrecreaterequest",
            "shortNames": ["crr"],
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": RECREATE_REQUESTS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}},
            }
        ],
    },
}


def view(pod: PodView, **fields: Any) -> RecreateView:
    """Return a reconcile's view of a request for a pod of the usual job. The request was made ten seconds ago."""
    made = RecreateView(
        namespace=KEY.namespace,
        name=f"{pod.name}-1",
        uid="request",
        job_uid=KEY.uid,
        pod=pod.name,
        pod_uid=pod.uid,
        generation=1,
        created=NOW.timestamp() - 10,
    )
    return replace(made, **fields)


def install(cluster: KubernetesCluster) -> None:
    """Install the definition and wait until the kind is served."""
    with contextlib.suppress(errors.AlreadyExists):
        cluster.create(CRDS, DEFINITION)
    for _ in range(200):
        with contextlib.suppress(errors.NotFound):
            cluster.list(RECREATE_REQUESTS)
            return
    raise AssertionError("the kind is not served")


def finish(cluster: KubernetesCluster, namespace: str, name: str, phase: str = "Succeeded", message: str = "") -> int:
    """Complete a request, as the daemon does, and return the resourceVersion of the request."""
    request = cluster.get(RECREATE_REQUESTS, name, namespace)
    states = [{"name": each["name"], "phase": phase} for each in request["spec"]["containers"]]
    status = {"phase": "Completed", "message": message, "containerRecreateStates": states}
    changed = cluster.patch(RECREATE_REQUESTS, name, {"status": status}, namespace, subresource="status")
    return int(changed["metadata"]["resourceVersion"])
