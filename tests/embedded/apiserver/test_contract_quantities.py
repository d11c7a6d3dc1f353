"""Quantities in pod templates on any API server: quantities that are never meant, and jobs that were stored before the
rules.

`tests/crds/schema/test_meant_quantities.py` covers each quantity without a server.
"""

from typing import Any

import pytest

from crds.api_resources import TORCHJOBS
from crds.resources import resource_names
from kube import errors
from kube.client import KubernetesCluster
from tests.embedded.apiserver.test_contract_definitions import submitted
from tests.embedded.apiserver.test_contract_worker_bounds import older_rules
from tests.support.crds.builders import job, task, template

FEW, WORKER = resource_names.FEW_BYTES, "/spec/torchTaskSpecs/Worker"


def asking(name: str, amounts: dict[str, Any]) -> dict[str, Any]:
    return submitted(job(torchTaskSpecs={"Worker": task(template=template(**amounts))}), name)


@pytest.mark.parametrize(
    ("name", "quantity", "words"),
    [
        ("memory", "512m", f"{FEW}; did you mean 512Mi?"),
        ("memory", "1.5", f"{FEW}; did you mean 1.5Mi?"),
        ("memory", 64, f"{FEW}; did you mean 64Mi?"),
        ("memory", 999_999, f"{FEW}; did you mean 999999Mi?"),
        ("memory", "0.5M", FEW),
        ("ephemeral-storage", "2000m", f"{FEW}; did you mean 2000Mi?"),
        ("hugepages-2Mi", "512m", f"{FEW}; did you mean 512Mi?"),
        ("hugepages-1Gi", "1", f"{FEW}; did you mean 1Mi?"),
        ("cpu", "500M", "should match"),
        ("cpu", 5_000_000, "should be less than or equal to 999999"),
    ],
)
def test_quantity_that_nobody_means_is_refused_with_its_field(
    cluster: KubernetesCluster, namespace: str, name: str, quantity: str | int, words: str
) -> None:
    with pytest.raises(errors.Invalid) as refusal:
        cluster.create(TORCHJOBS, asking("train", {name: quantity}), namespace, dry_run=True)
    (cause,) = (each for each in refusal.value.causes if each.field != "<nil>")
    assert cause.field.replace("[Worker]", ".Worker") == (
        f"spec.torchTaskSpecs.Worker.template.spec.containers[0].resources.limits.{name}"
    )
    assert words in cause.message if name == "cpu" else cause.message.endswith(f": {words}")


@pytest.mark.parametrize(
    "amounts",
    [
        {"cpu": 0.5, "memory": 1024**3, "ephemeral-storage": 0, "nvidia.com/gpu": 8},
        {"cpu": "500m", "memory": "1.5Gi", "hugepages-2Mi": "512Mi", "rdma/hca": "1"},
        {"cpu": 4, "memory": None, "hugepages-1Gi": "0"},
        {"cpu": None, "memory": "1288490188800m"},
    ],
)
def test_quantities_that_somebody_may_mean_are_stored_as_written(
    cluster: KubernetesCluster, namespace: str, amounts: dict[str, Any]
) -> None:
    manifest = asking("train", amounts)
    assert cluster.create(TORCHJOBS, manifest, namespace, dry_run=True)["spec"] == manifest["spec"]


def test_quantities_that_were_stored_before_the_rules_stay_until_their_containers_change(
    cluster: KubernetesCluster, namespace: str
) -> None:
    manifest = asking("stored", {"memory": "512m", "cpu": "500M", "ephemeral-storage": 2.0**30})
    with older_rules(cluster, namespace):
        cluster.create(TORCHJOBS, manifest, namespace)
    cluster.patch(TORCHJOBS, "stored", {"status": {"phase": "Queued"}}, namespace, subresource="status")
    for path, value in ((f"{WORKER}/numTasks", 3), (f"{WORKER}/template/metadata", {}), ("/spec/backoffLimit", 3)):
        cluster.patch(TORCHJOBS, "stored", [{"op": "add", "path": path, "value": value}], namespace)
    image = [{"op": "replace", "path": f"{WORKER}/template/spec/containers/0/image", "value": "new"}]
    with pytest.raises(errors.Invalid) as refusal:
        cluster.patch(TORCHJOBS, "stored", image, namespace)
    assert {each.field.rpartition(".")[2] for each in refusal.value.causes} >= {"cpu", "memory"}
    resources = {"op": "replace", "path": f"{WORKER}/template/spec/containers/0/resources/limits"}
    cluster.patch(TORCHJOBS, "stored", [{**resources, "value": {"memory": "512Mi"}}], namespace)
