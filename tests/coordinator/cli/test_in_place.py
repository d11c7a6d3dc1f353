"""The warning about jobs whose containers no part of the cluster can restart in place."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.cli import submission
from coordinator.runs import in_place
from coordinator.runs.submission_findings import Vetting
from coordinator.wording import job_context
from crds.api_resources import ALPHA_RECREATE_REQUESTS, RECREATE_REQUESTS, TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from reconcilers.views import node_view
from tests.coordinator.cli.test_submission import file
from tests.support.coordinator.desk import manifest

STATIC = {"mode": "InPlaceRestart"}


NEW = {"conditions": [{"type": "Ready", "status": "True"}], "declaredFeatures": [node_view.RESTARTS_ALL]}
OLD = {"conditions": [{"type": "Ready", "status": "True"}]}


def cluster_with(*served: object, nodes: Sequence[dict[str, Any]] = ()) -> Any:
    items = [{"metadata": {"name": f"n{at}"}, "spec": {}, "status": each} for at, each in enumerate(nodes)]
    return SimpleNamespace(serves=lambda resource: resource in served, list=lambda _: SimpleNamespace(items=items))


@pytest.mark.parametrize(
    ("policy", "served", "nodes", "embedded", "warned"),
    [
        (STATIC, (), [NEW, OLD], False, True),
        (STATIC, (), [NEW, NEW], False, False),
        (STATIC, (RECREATE_REQUESTS,), [OLD], False, False),
        (STATIC, (ALPHA_RECREATE_REQUESTS,), [OLD], False, False),
        (STATIC, (), [OLD], True, False),
        ({"mode": "Rendezvous"}, (), [OLD], False, False),
        ({}, (), [OLD], False, False),
        (None, (), [OLD], False, False),
    ],
)
def test_only_a_cluster_that_restarts_nothing_in_place_is_an_obstacle(
    policy: dict[str, Any] | None,
    served: tuple[object, ...],
    nodes: list[dict[str, Any]],
    embedded: bool,
    warned: bool,
) -> None:
    body = {"spec": {} if policy is None else {"torchElasticPolicy": policy}}
    found = next(in_place.find(cluster_with(*served, nodes=nodes), body, embedded=embedded), None)
    assert (found is not None) is warned
    assert found is None or not found.firm
    assert found is None or "node n1 does not declare" in found.message


@pytest.mark.parametrize("call", ["serves", "list"])
def test_nothing_is_said_if_the_cluster_cannot_be_read(call: str) -> None:
    def refuse(_: object) -> bool:
        raise errors.Forbidden("not allowed")

    cluster = cluster_with(nodes=[OLD])
    setattr(cluster, call, refuse)
    assert list(in_place.find(cluster, {"spec": {"torchElasticPolicy": STATIC}}, embedded=False)) == []


def test_submission_and_show_warn_and_take_the_job(cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> None:
    body = manifest("static", torchElasticPolicy=STATIC)
    documents = submission.read([file(tmp_path, body)], namespace, "/home/me")
    told: list[str] = []
    assert len(submission.submit(cluster, documents, Vetting(tell=told.append), dry_run=False)) == 1
    (said,) = told
    assert said.startswith(f'warning: TorchJob "static": {in_place.FIELD}: nothing restarts containers in place here (')
    stored = cluster.get(TORCHJOBS, "static", namespace)
    assert job_context.read(cluster, stored).notes == (said.replace('warning: TorchJob "static"', "note"),)
    assert job_context.read(cluster, stored, embedded=True).notes == ()
