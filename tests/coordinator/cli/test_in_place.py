"""The warning about jobs whose containers nothing can restart in place."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.cli import in_place, job_context, submission
from crds.api_resources import ALPHA_RECREATE_REQUESTS, RECREATE_REQUESTS, TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from tests.coordinator.cli.test_submission import file
from tests.support.coordinator.desk import manifest

STATIC = {"mode": "InPlaceRestart"}


def cluster_with(*served: object) -> Any:
    return SimpleNamespace(serves=lambda resource: resource in served)


@pytest.mark.parametrize(
    ("policy", "served", "embedded", "warned"),
    [
        (STATIC, (), False, True),
        (STATIC, (RECREATE_REQUESTS,), False, False),
        (STATIC, (ALPHA_RECREATE_REQUESTS,), False, False),
        (STATIC, (), True, False),
        ({"mode": "Rendezvous"}, (), False, False),
        ({}, (), False, False),
        (None, (), False, False),
    ],
)
def test_only_a_cluster_that_restarts_nothing_in_place_is_an_obstacle(
    policy: dict[str, Any] | None, served: tuple[object, ...], embedded: bool, warned: bool
) -> None:
    body = {"spec": {} if policy is None else {"torchElasticPolicy": policy}}
    found = in_place.find_obstacle(cluster_with(*served), body, embedded=embedded)
    assert (found is not None) is warned
    assert found is None or not found.firm


def test_nothing_is_said_if_the_served_kinds_cannot_be_read() -> None:
    def serves(_: object) -> bool:
        raise errors.Forbidden("no discovery")

    cluster: Any = SimpleNamespace(serves=serves)
    assert in_place.find_obstacle(cluster, {"spec": {"torchElasticPolicy": STATIC}}, embedded=False) is None


def test_submission_and_show_warn_and_take_the_job(cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> None:
    body = manifest("static", torchElasticPolicy=STATIC)
    documents = submission.read([file(tmp_path, body)], namespace, "/home/me")
    told: list[str] = []
    assert len(submission.submit(cluster, documents, dry_run=False, tell=told.append)) == 1
    assert told == [f'warning: TorchJob "static": {in_place.FIELD}: {in_place.NOT_POSSIBLE}']
    stored = cluster.get(TORCHJOBS, "static", namespace)
    assert job_context.read(cluster, stored).notes == (f"note: {in_place.FIELD}: {in_place.NOT_POSSIBLE}",)
    assert job_context.read(cluster, stored, embedded=True).notes == ()
