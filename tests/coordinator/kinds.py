"""Kinds that others define, as small as can be, for API servers on which nobody has installed them."""

from cluster import errors
from cluster.api import Cluster, Manifest
from coordinator import foreign
from crds.resources import CRDS, Resource
from tests.coordinator.desk import remove, wait_for


def definition(resource: Resource) -> Manifest:
    """Of a kind that keeps whatever it is given."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    approved = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": foreign.name(resource), "annotations": approved},
        "spec": {"group": resource.group, "scope": "Namespaced", "versions": [version], "names": names},
    }


def install(cluster: Cluster, *kinds: Resource) -> None:
    """Have them served."""
    for each in kinds:
        try:
            cluster.create(CRDS, definition(each))
        except errors.AlreadyExists:
            continue
    wait_for(lambda: all(cluster.serves(each) for each in kinds))


def uninstall(cluster: Cluster, *kinds: Resource) -> None:
    """Take them away, with their objects."""
    for each in kinds:
        remove(cluster, CRDS, foreign.name(each), "")
    wait_for(lambda: not any(cluster.serves(each) for each in kinds))
