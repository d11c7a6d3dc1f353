"""ScaleOut and ScaleIn on an API server: defaults, refusals, columns, and the status as a subresource."""

from typing import Any

import pytest

from crds import scale_request
from crds.api_resources import SCALE_INS, SCALE_OUTS, Resource
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube.servers import Server

TABLES = "application/json;as=Table;v=v1;g=meta.k8s.io"
BODIES = [
    pytest.param(SCALE_OUTS, scale_request.manifest("ScaleOut", "train", toAdd={"count": 2}), id="ScaleOut"),
    pytest.param(SCALE_INS, scale_request.manifest("ScaleIn", "train", toDelete={"podNames": ["a"]}), id="ScaleIn"),
]


@pytest.mark.parametrize(("resource", "body"), BODIES)
def test_server_completes_a_request_and_refuses_its_change(
    cluster: KubernetesCluster, namespace: str, resource: Resource, body: dict[str, Any]
) -> None:
    made = cluster.create(resource, body, namespace)
    name = made["metadata"]["name"]
    assert name.startswith("train-")
    defaults = {"taskType": "Worker", "timeoutSeconds": 600, "ttlSecondsAfterFinished": 600}
    assert made["spec"] == defaults | body["spec"]
    with pytest.raises(errors.Invalid, match=scale_request.UNCHANGEABLE):
        cluster.patch(resource, name, {"spec": {"timeoutSeconds": 5}}, namespace)
    cluster.patch(resource, name, {"metadata": {"labels": {"a": "b"}}}, namespace)


@pytest.mark.parametrize(("resource", "body"), BODIES)
def test_columns_show_job_sizes_and_phase(
    server: Server, cluster: KubernetesCluster, namespace: str, resource: Resource, body: dict[str, Any]
) -> None:
    name = cluster.create(resource, body, namespace)["metadata"]["name"]
    status = {"phase": "Scaling", "reason": "Scaling", "from": 4, "to": 2, "pods": ["train-worker-3"]}
    cluster.patch(resource, name, {"status": status}, namespace, subresource="status")
    code, table = server.send("GET", resource.path(namespace), Accept=TABLES)
    assert code == 200
    shown = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert shown == ["Name", "Job", "From", "To", "Phase", "Age"]
    assert table["rows"][0]["cells"][:5] == [name, "train", 4, 2, "Scaling"]


@pytest.mark.parametrize(("resource", "body"), BODIES)
def test_status_is_written_apart_from_the_request(
    cluster: KubernetesCluster, namespace: str, resource: Resource, body: dict[str, Any]
) -> None:
    made = cluster.create(resource, body | {"status": {"phase": "Succeeded"}}, namespace)
    assert "status" not in made
    with pytest.raises(errors.Invalid, match=r"status\.phase"):
        cluster.patch(
            resource, made["metadata"]["name"], {"status": {"phase": "Done"}}, namespace, subresource="status"
        )
