"""The number of workers on any API server: what /scale refuses, and jobs that were stored before the rules.

`tests/crds/schema/test_worker_bounds.py` covers each rule without a server.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from crds import generate
from crds.api_resources import CRDS, TORCHJOBS
from crds.torchjob import checks
from kube import errors
from kube.client import KubernetesCluster
from tests.crds.schema.test_change_rules import ADMISSION
from tests.embedded.apiserver.test_contract_definitions import nodes, schema, submitted
from tests.support.crds.builders import job, task
from tests.support.waiting import until

TORCHJOB = generate.load()[0]
RUNNING = {"status": {"phase": "Running", "admission": ADMISSION}}
BOUNDS = {"numMinReplicas": 2, "numMaxReplicas": 6, "replicaStep": 2}


def elastic(name: str, workers: int, policy: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    spec = {} if policy is None else {"torchElasticPolicy": policy}
    return submitted(job(torchTaskSpecs={"Worker": task(numTasks=workers)}, **spec, **fields), name)


def admit(cluster: KubernetesCluster, name: str, namespace: str) -> None:
    cluster.patch(TORCHJOBS, name, RUNNING, namespace, subresource="status")


def scale(cluster: KubernetesCluster, name: str, workers: int, namespace: str) -> None:
    cluster.patch(TORCHJOBS, name, {"spec": {"replicas": workers}}, namespace, subresource="scale")


@pytest.mark.parametrize("is_admitted", [False, True])
def test_scale_beyond_the_bounds_is_refused_and_names_them(
    cluster: KubernetesCluster, namespace: str, is_admitted: bool
) -> None:
    cluster.create(TORCHJOBS, elastic("elastic", 4, BOUNDS), namespace)
    if is_admitted:
        admit(cluster, "elastic", namespace)
    for workers in (0, 1, 3, 8):
        with pytest.raises(errors.Invalid) as refusal:
            scale(cluster, "elastic", workers, namespace)
        assert "must be from 2 to 6, in steps of 2: " in str(refusal.value)
        assert {cause.field.replace("[Worker]", ".Worker") for cause in refusal.value.causes} == {
            "spec.torchTaskSpecs.Worker.numTasks"
        }
    scale(cluster, "elastic", 6, namespace)


def test_scale_of_an_admitted_job_that_is_not_elastic_is_refused(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(TORCHJOBS, elastic("plain", 2, None), namespace)
    scale(cluster, "plain", 3, namespace)  # the job waits, so any edit is permitted
    admit(cluster, "plain", namespace)
    with pytest.raises(errors.Invalid, match="torchTaskSpecs may not change while the job is admitted"):
        scale(cluster, "plain", 4, namespace)
    with pytest.raises(errors.Invalid, match="should be greater than or equal to 1"):
        scale(cluster, "plain", 0, namespace)


STORED = {
    "many": elastic("many", 9, BOUNDS),
    "grid": elastic("grid", 3, BOUNDS),
    "members": elastic("members", 4, BOUNDS, minMembers={"Worker": 3}),
    "lone": submitted(job(torchTaskSpecs={"Master": task()}, torchElasticPolicy=BOUNDS), "lone"),
}


@contextmanager
def older_rules(cluster: KubernetesCluster, namespace: str) -> Iterator[None]:
    """Serve TorchJobs without the rules that are newer than the stored jobs."""
    older = copy.deepcopy(TORCHJOB)
    for path, node in nodes(schema(older)):
        if path.endswith(("resources.requests", "resources.limits")):
            del node["properties"]
        rules = node.get("x-kubernetes-validations", [])
        rules[:] = [rule for rule in rules if not rule.get("optionalOldSelf")]
    probe = elastic("probe", 9, BOUNDS)

    def is_accepted() -> bool:
        try:
            cluster.create(TORCHJOBS, probe, namespace, dry_run=True)
        except errors.Invalid:
            return False
        return True

    def serve(definition: dict[str, Any]) -> None:
        change = {"spec": {"versions": definition["spec"]["versions"]}}
        cluster.patch(CRDS, definition["metadata"]["name"], change)

    serve(older)
    try:
        until(is_accepted)
        yield
    finally:
        serve(TORCHJOB)
        until(lambda: not is_accepted())


def test_jobs_that_were_stored_before_the_rules_run_on(cluster: KubernetesCluster, namespace: str) -> None:
    with older_rules(cluster, namespace):
        for manifest in STORED.values():
            cluster.create(TORCHJOBS, manifest, namespace)
    for name, manifest in STORED.items():
        admit(cluster, name, namespace)
        cluster.patch(TORCHJOBS, name, {"spec": {"backoffLimit": 3}}, namespace)
        cluster.patch(TORCHJOBS, name, {"metadata": {"labels": {"a": "b"}}}, namespace)
        with pytest.raises(errors.Invalid):
            cluster.create(TORCHJOBS, manifest | {"metadata": {"name": f"{name}-2"}}, namespace)
    with pytest.raises(errors.Invalid, match="must be from 2 to 6"):
        scale(cluster, "many", 10, namespace)
    scale(cluster, "many", 6, namespace)
    cluster.patch(
        TORCHJOBS, "members", {"status": {"phase": "Queued", "admission": None}}, namespace, subresource="status"
    )
    with pytest.raises(errors.Invalid, match=checks.MANY_LEAST_WORKERS):
        cluster.patch(TORCHJOBS, "members", {"spec": {"minMembers": {"Worker": 4}}}, namespace)
