"""Pods with a start gate that uses a downwardAPI volume, on any API server."""

from typing import Any

import pytest

from crds import labels
from crds.api_resources import PODS
from kube import errors
from kube.client import KubernetesCluster

START = f"metadata.annotations['{labels.START}']"


def pod(*items: Any) -> dict[str, Any]:
    gate = {
        "name": "gate",
        "image": "any",
        "command": ["sh", "-c", 'until [ -s "$TORCHQ_VOLUME_TORCHQ_START/open" ]; do sleep 0.2; done'],
        "volumeMounts": [{"name": "torchq-start", "mountPath": "/etc/torchq"}],
        "env": [{"name": "TORCHQ_VOLUME_TORCHQ_START", "value": "/etc/torchq"}],
    }
    spec = {
        "initContainers": [gate],
        "containers": [{"name": "torch", "image": "any"}],
        "volumes": [{"name": "torchq-start", "downwardAPI": {"items": list(items)}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"}, "spec": spec}


def test_downward_api_volume_is_stored_with_defaults(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(PODS, pod({"path": "open", "fieldRef": {"fieldPath": START}}), namespace)
    (volume,) = [each for each in made["spec"]["volumes"] if each["name"] == "torchq-start"]
    fields = {"apiVersion": "v1", "fieldPath": START}
    assert volume["downwardAPI"] == {"defaultMode": 420, "items": [{"path": "open", "fieldRef": fields}]}


@pytest.mark.parametrize("item", [{"fieldRef": {"fieldPath": START}}, {"path": "open", "fieldref": {}}])
def test_invalid_downward_api_volume_is_refused(
    cluster: KubernetesCluster, namespace: str, item: dict[str, Any]
) -> None:
    with pytest.raises(errors.Invalid):
        cluster.create(PODS, pod(item), namespace)
