"""The Kubernetes resources torchq speaks of: group, version, plural, kind and scope.

One rule: a path to the API server is made here and nowhere else.
"""

from dataclasses import dataclass

from crds.labels import GROUP

VERSION = "v1alpha1"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object as discovery names it; `group` is empty for the legacy core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What an object of this resource carries as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The URL path at which a server says what it serves of this group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection (no name), an object, or its subresource."""
        scope = ["namespaces", namespace] if namespace and self.namespaced else []
        return "/".join(filter(None, [self.root, *scope, self.plural, name, subresource]))


TORCHJOBS = Resource(GROUP, VERSION, "torchjobs", "TorchJob")
TENANT_QUEUES = Resource(GROUP, VERSION, "tenantqueues", "TenantQueue", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
EVENTS = Resource("", "v1", "events", "Event")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

# What others define and torchq speaks to where it is installed.
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
GANG_QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
RECREATE_REQUESTS = Resource("apps.kruise.io", "v1alpha1", "containerrecreaterequests", "ContainerRecreateRequest")
NATIVE_POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
"""Kubernetes' own, from 1.37."""
ALPHA_POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
"""The same in 1.36."""
