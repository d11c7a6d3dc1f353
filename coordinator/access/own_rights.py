"""What the account of a client may do, as the API server says."""

from typing import NamedTuple

from crds.api_resources import Resource
from kube.api import Cluster

REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


class AccessQuestion(NamedTuple):
    """Whether an account may use a verb on a resource; without a namespace or a name, on all of them."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def is_allowed(cluster: Cluster, question: AccessQuestion) -> bool:
    """Return whether the account of a client may do something. Raises any ClusterError."""
    attributes = {
        "verb": question.verb,
        "group": question.resource.group,
        "resource": question.resource.plural,
        "subresource": question.subresource,
        "name": question.name,
        "namespace": question.namespace,
    }
    body = {
        "apiVersion": REVIEWS.api_version,
        "kind": REVIEWS.kind,
        "spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}},
    }
    return bool((cluster.create(REVIEWS, body).get("status") or {}).get("allowed"))
