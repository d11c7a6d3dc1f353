"""Minimal definitions of foreign kinds, for API servers on which their projects are not installed."""

from coordinator.cache import optional_kinds
from crds.api_resources import CRDS, POD_GROUPS, Resource
from embedded import volcano_crds
from kube import errors
from kube.api import Cluster, Manifest
from tests.support.coordinator.desk import remove
from tests.support.waiting import until


def definition(resource: Resource) -> Manifest:
    """Return a CustomResourceDefinition that keeps all fields of an object."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    approved = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": optional_kinds.kind_name(resource), "annotations": approved},
        "spec": {"group": resource.group, "scope": "Namespaced", "versions": [version], "names": names},
    }


def install(cluster: Cluster, *kinds: Resource) -> None:
    """Install the kinds and wait until the server serves them."""
    for each in kinds:
        try:
            cluster.create(CRDS, definition(each))
        except errors.AlreadyExists:
            continue
    until(lambda: all(cluster.serves(each) for each in kinds))


def install_gangs(cluster: Cluster) -> None:
    """Install Volcano's kinds. The server serves a kind a moment after its definition is created."""

    def installed() -> bool:
        try:
            volcano_crds.install(cluster)
        except errors.NotFound:
            return False
        return cluster.serves(POD_GROUPS)

    until(installed)


def uninstall(cluster: Cluster, *kinds: Resource) -> None:
    """Delete the kinds with their objects."""
    for each in kinds:
        remove(cluster, CRDS, optional_kinds.kind_name(each), "")
    until(lambda: not any(cluster.serves(each) for each in kinds))
