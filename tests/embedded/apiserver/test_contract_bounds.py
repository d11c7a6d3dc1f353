"""The limits on a job's pod templates at the API servers, and updates of objects that were stored without these
limits.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from crds import generate
from crds.api_resources import TORCHJOBS, Resource
from crds.schema import structural
from crds.torchjob import size_limits
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.waiting import until

CONTAINER = {"name": "torch", "image": "torch:1"}


def job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [CONTAINER], **spec}}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": "train"},
        "spec": {"torchTaskSpecs": {"Master": {"template": template}}},
    }


def containers(count: int) -> list[dict[str, Any]]:
    return [{"name": f"c{number}"} for number in range(count)]


def names(count: int) -> dict[str, int]:
    return {f"example.org/r{number}": 1 for number in range(count)}


BOUNDS = {
    "containers": (size_limits.MOST_CONTAINERS, lambda n: {"containers": containers(n)}),
    "initContainers": (size_limits.MOST_CONTAINERS, lambda n: {"initContainers": containers(n)}),
    "requests": (
        size_limits.MOST_RESOURCES,
        lambda n: {"containers": [CONTAINER | {"resources": {"requests": names(n)}}]},
    ),
    "limits": (
        size_limits.MOST_RESOURCES,
        lambda n: {"initContainers": [CONTAINER | {"resources": {"limits": names(n)}}]},
    ),
    "resources of the pod": (size_limits.MOST_RESOURCES, lambda n: {"resources": {"requests": names(n)}}),
    "overhead": (size_limits.MOST_RESOURCES, lambda n: {"overhead": names(n)}),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_job_with_too_large_a_template_is_refused(cluster: KubernetesCluster, namespace: str, bound: str) -> None:
    most, spec = BOUNDS[bound]
    cluster.create(TORCHJOBS, job(**spec(most)), namespace, dry_run=True)
    with pytest.raises(errors.Invalid, match=f"Too many: {most + 1}|must have at most {most} items"):
        cluster.create(TORCHJOBS, job(**spec(most + 1)), namespace, dry_run=True)


def test_job_keeps_unknown_fields_and_null_in_its_template(cluster: KubernetesCluster, namespace: str) -> None:
    odd = CONTAINER | {
        "resources": {"claims": [{"name": "c"}], "requests": {"cpu": 1}, "limits": None},
        "later": {"x": 1},
    }
    spec = {"containers": [odd], "initContainers": None, "overhead": None, "resources": None, "later": [1, {"y": None}]}
    body = job(**spec)
    made = cluster.create(TORCHJOBS, body, namespace)
    assert made["spec"] == body["spec"]


@pytest.fixture
def loose(server: Server, cluster: KubernetesCluster) -> Iterator[tuple[Resource, dict[str, Any], dict[str, Any]]]:
    """Install a copy of the TorchJob kind that permits one more container. Yield the kind, its strict definition and
    its loose definition.
    """
    strict = copy.deepcopy(generate.load()[0])
    names, group = strict["spec"]["names"], "bounds.example.org"
    strict["metadata"]["name"], strict["spec"]["group"] = f"torchjobs.{group}", group
    names.update(shortNames=["boundedtj"], categories=[])
    wider = copy.deepcopy(strict)
    root = wider["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = structural.below(root, "spec.torchTaskSpecs.*.template.spec")
    spec["properties"]["containers"]["maxItems"] += 1  # without a limit, the rules of containers would cost too much
    resource = Resource(group, TORCHJOBS.version, TORCHJOBS.plural, TORCHJOBS.kind)
    servers.install(server, [wider])
    yield resource, strict, wider
    server.send("DELETE", servers.CRDS.path(name=strict["metadata"]["name"]))


def test_stored_job_beyond_the_limits_can_still_be_patched(
    server: Server,
    cluster: KubernetesCluster,
    namespace: str,
    loose: tuple[Resource, dict[str, Any], dict[str, Any]],
) -> None:
    """Kubernetes 1.30 and newer, and the embedded server, validate only the fields that change."""
    resource, strict, _ = loose
    body = job(containers=containers(size_limits.MOST_CONTAINERS + 1)) | {
        "apiVersion": f"{resource.group}/{resource.version}"
    }
    cluster.create(resource, body, namespace)
    path = servers.CRDS.path(name=strict["metadata"]["name"])
    schema = {"spec": {"versions": strict["spec"]["versions"]}}
    code, answer = server.send("PATCH", path, schema, "application/merge-patch+json")
    assert code == 200, answer

    def refused() -> bool:
        again = body | {"metadata": {"name": "again"}}
        try:
            cluster.create(resource, again, namespace, dry_run=True)
        except errors.Invalid:
            return True
        return False

    until(refused)
    cluster.patch(resource, "train", {"status": {"phase": "Failed"}}, namespace, subresource="status")
    cluster.patch(resource, "train", {"metadata": {"finalizers": ["example.org/keep"]}}, namespace)
    made = cluster.patch(resource, "train", {"metadata": {"finalizers": None, "labels": {"a": "b"}}}, namespace)
    assert made["status"]["phase"] == "Failed"
    assert "finalizers" not in made["metadata"]
