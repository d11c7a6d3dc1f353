"""Requests to recreate containers are written in the version that the API server serves."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crds.api_resources import ALPHA_RECREATE_REQUESTS, RECREATE_REQUESTS, Resource
from kube.api import Manifest
from reconcilers.apply.apply import Application
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreateObject, DeleteObject, Plan
from tests.support.reconcilers.builders import KEY


class Recorder:
    """A cluster that keeps the objects that it is told to create and delete."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def create(self, resource: Resource, body: Manifest, _: str) -> Manifest:
        self.calls.append((resource.api_version, body["apiVersion"]))
        return body

    def delete(self, resource: Resource, name: str, _: str, **__: object) -> None:
        self.calls.append((resource.api_version, name))


@pytest.mark.parametrize(
    ("served", "version"),
    [
        ({RECREATE_REQUESTS}, "apps.kruise.io/v1beta1"),
        ({ALPHA_RECREATE_REQUESTS}, "apps.kruise.io/v1alpha1"),
        (set(), "apps.kruise.io/v1beta1"),
    ],
)
def test_request_is_created_and_deleted_in_the_served_version(served: set[Resource], version: str) -> None:
    cluster: Any = Recorder()
    body = {"apiVersion": RECREATE_REQUESTS.api_version, "metadata": {"name": "digits-master-0-1"}}
    actions = (CreateObject(RECREATE_REQUESTS, body), DeleteObject(RECREATE_REQUESTS, "digits-master-0-0", "uid"))
    settings = ReconcileSettings(served=frozenset(served))
    with ThreadPoolExecutor(1) as executor:
        run = Application(cluster, settings, executor, lambda: 0.0, KEY, lambda: True, lambda *_: "")
        run.run(Plan(actions))
    assert cluster.calls == [(version, version), (version, "digits-master-0-0")]
