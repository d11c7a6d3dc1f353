"""The Kubernetes resources that torchq uses: group, version, plural, kind and scope.

One rule: this is the only module that builds URL paths of the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from crds.labels import GROUP

VERSION = "v1alpha1"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as in API discovery; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    heads: bool = False
    """Whether only the metadata of its objects are read in lists, and not what is in them."""

    @property
    def api_version(self) -> str:
        """The `apiVersion` of objects of this resource."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The URL path of the discovery document of this group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def is_version_of(self, other: "Resource") -> bool:
        """Return whether both resources are the same kind of objects, in the same version or not."""
        return (self.group, self.plural) == (other.group, other.plural)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection (without a name), an object, or its subresource."""
        scope = ["namespaces", namespace] if namespace and self.namespaced else []
        return "/".join(filter(None, [self.root, *scope, self.plural, name, subresource]))

    def manifest(self, metadata: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
        """Return an object of this resource."""
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **sections}

    def reference(self, name: str, uid: str) -> dict[str, Any]:
        """Return the reference to an object of this resource."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": name, "uid": uid}


TORCHJOBS = Resource(GROUP, VERSION, "torchjobs", "TorchJob")
TENANT_QUEUES = Resource(GROUP, VERSION, "tenantqueues", "TenantQueue", namespaced=False)
SCALE_OUTS = Resource(GROUP, VERSION, "scaleouts", "ScaleOut")
SCALE_INS = Resource(GROUP, VERSION, "scaleins", "ScaleIn")
MODEL_VERSIONS = Resource("model.distributed.io", VERSION, "modelversions", "ModelVersion")
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
EVENTS = Resource("", "v1", "events", "Event")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONFIG_MAP_HEADS = Resource("", "v1", "configmaps", "ConfigMap", heads=True)
SECRETS = Resource("", "v1", "secrets", "Secret")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

# Resources of other projects, which torchq uses where they are installed.
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
GANG_QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
RECREATE_REQUESTS = Resource("apps.kruise.io", "v1beta1", "containerrecreaterequests", "ContainerRecreateRequest")
ALPHA_RECREATE_REQUESTS = replace(RECREATE_REQUESTS, version="v1alpha1")
"""The requests of OpenKruise before 1.9. Later ones store v1beta1, and convert each v1alpha1 in a webhook."""
NATIVE_POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
"""The PodGroups of Kubernetes, from version 1.37."""
ALPHA_POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
"""The PodGroups of Kubernetes 1.36."""


def job_logs_path(namespace: str, job_uid: str, run: str = "") -> str:
    """Return the path below which an embedded API server lists the runs of a TorchJob's containers, or the path of the
    log of one run.

    No other API server has it (`embedded/apiserver/http/log_answers.py` describes the answers).
    """
    return "/".join(filter(None, ["/torchq/logs", namespace, job_uid, run]))
