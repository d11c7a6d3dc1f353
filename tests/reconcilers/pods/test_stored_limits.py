"""The status of a TorchJob that was stored before its fields were bounded can still be written."""

import copy
from typing import Any

from crds import generate
from crds.api_resources import CRDS, Resource
from crds.torchjob import torchjob
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.acceptance.stack import until
from tests.support.reconcilers.builders import manifest

EARLIER = Resource("earlier.example.org", "v1alpha1", "torchjobs", "TorchJob")


def definition(largest: int) -> Manifest:
    """Return the definition of TorchJob in a separate API group, with this maximum of backoffLimit."""
    found: dict[str, Any] = copy.deepcopy(generate.load()[0])
    found["metadata"]["name"] = f"torchjobs.{EARLIER.group}"
    found["spec"]["group"] = EARLIER.group
    found["spec"]["names"].pop("categories", None)
    found["spec"]["names"].pop("shortNames", None)
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["backoffLimit"]["maximum"] = largest
    for name in ("apiVersion",):
        schema["properties"][name].pop("enum", None)
    return found


def test_status_of_job_beyond_new_limit_can_be_written(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(CRDS, definition(2**31 - 1))
    try:
        body = manifest(backoffLimit=5000)
        body = {**body, "apiVersion": EARLIER.api_version, "metadata": {"name": "digits"}}
        del body["status"]
        until(lambda: cluster.serves(EARLIER))
        made = until(lambda: created(cluster, body, namespace))
        assert made["spec"]["backoffLimit"] == 5000
        largest = {"spec": {"versions": definition(1000)["spec"]["versions"]}}
        cluster.patch(CRDS, f"torchjobs.{EARLIER.group}", largest)
        until(lambda: refused(cluster, body, namespace))
        written = cluster.patch(EARLIER, "digits", {"status": {"restartCount": 7}}, namespace, subresource="status")
        assert written["status"]["restartCount"] == 7
        kept = cluster.patch(EARLIER, "digits", {"metadata": {"finalizers": ["example.org/a"]}}, namespace)
        assert kept["metadata"]["finalizers"] == ["example.org/a"]
        cluster.patch(EARLIER, "digits", {"metadata": {"finalizers": None}}, namespace)
        read = {**written, "apiVersion": torchjob.TorchJob.model_fields["api_version"].default}
        assert torchjob.parse(read).spec.backoff_limit == 1000
    finally:
        cluster.delete(CRDS, f"torchjobs.{EARLIER.group}")


def created(cluster: KubernetesCluster, body: Manifest, namespace: str) -> Manifest | None:
    try:
        return cluster.create(EARLIER, body, namespace)
    except errors.NotFound:  # the server does not serve the new kind yet
        return None


def refused(cluster: KubernetesCluster, body: Manifest, namespace: str) -> bool:
    """Return whether the server validates by the newer definition."""
    try:
        cluster.create(EARLIER, {**body, "metadata": {"name": "another"}}, namespace, dry_run=True)
    except errors.Invalid as error:
        return "backoffLimit" in str(error)
    return False
