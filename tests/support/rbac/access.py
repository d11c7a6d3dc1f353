"""Accounts with the permissions of deploy/rbac on an API server, and ways to remove one permission for a time.

One rule: on a real API server the files are applied and its RBAC decides. In front of the embedded server, which has
one account, a gatekeeper decides by the same tables.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import yaml

from coordinator.rbac import account_manifests
from coordinator.rbac.permissions import QUEUE_ADMIN, ROLES, USER, WORKER, PolicyRule, Role
from crds.api_resources import NAMESPACES, Resource
from kube import client
from kube.api import Cluster
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support.acceptance.stack import until
from tests.support.kube.servers import Server
from tests.support.rbac import door
from tests.support.rbac.gatekeeper import Gatekeeper, of_rule

FILES = Path(account_manifests.__file__).parents[2] / "deploy" / "rbac"
TENANT = "team-a"
"""The tenant in the example file."""
ACCESS = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(ACCESS, "v1", "clusterroles", "ClusterRole", namespaced=False)
ROLES_OF_NAMESPACES = Resource(ACCESS, "v1", "roles", "Role")
KINDS = {
    each.kind: each
    for each in (
        NAMESPACES,
        CLUSTER_ROLES,
        ROLES_OF_NAMESPACES,
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource(ACCESS, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(ACCESS, "v1", "rolebindings", "RoleBinding"),
    )
}


class Access(Protocol):
    """The accounts of one API server and their permissions."""

    server: Server
    admin: KubernetesCluster

    def cluster(self, role: Role) -> Cluster:
        """Return the API as an account of this role sees it."""

    def narrowed(self, *namespaces: str) -> contextlib.AbstractContextManager[Cluster]:
        """Yield the API as seen by a worker that may create pods in these namespaces only."""

    def config(self, role: Role, folder: Path) -> contextlib.AbstractContextManager[Path]:
        """Yield the path of a kubeconfig for an account of this role. Other programs use this file."""

    def without(self, role: Role, rule: PolicyRule, verb: str) -> contextlib.AbstractContextManager[None]:
        """Remove one permission for the duration of the block."""

    def name(self, role: Role) -> str:
        """Return the name of the role's account on the API server."""


class Gated:
    """The embedded API server behind gatekeepers."""

    def __init__(self, server: Server, admin: KubernetesCluster) -> None:
        self.server, self.admin = server, admin
        self._taken: dict[str, tuple[str, str]] = {}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}
        with contextlib.suppress(client.errors.AlreadyExists):
            admin.create(NAMESPACES, namespace)

    def cluster(self, role: Role) -> Gatekeeper:
        return Gatekeeper(self.admin, role, without=self._taken.get(role.name))

    @contextlib.contextmanager
    def narrowed(self, *namespaces: str) -> Iterator[Cluster]:
        yield Gatekeeper(self.admin, WORKER, namespaces=namespaces)

    @contextlib.contextmanager
    def config(self, role: Role, folder: Path) -> Iterator[Path]:
        with door.running(self.server, role, TENANT, self._taken.get(role.name)) as url:
            cluster = {"name": "door", "cluster": {"server": url}}
            context = {"name": "door", "context": {"cluster": "door", "user": "", "namespace": TENANT}}
            config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": []}
            path = folder / "door.kubeconfig"
            path.write_text(json.dumps(config | {"current-context": "door"}))
            yield path

    @contextlib.contextmanager
    def without(self, role: Role, rule: PolicyRule, verb: str) -> Iterator[None]:
        self._taken[role.name] = (of_rule(rule), verb)
        yield
        del self._taken[role.name]

    def name(self, role: Role) -> str:
        return f"torchq-{role.name}"


class Granted:
    """A real API server with deploy/rbac applied, and a token for each account."""

    def __init__(self, server: Server, admin: KubernetesCluster, folder: Path) -> None:
        self.server, self.admin = server, admin
        self._folder = folder
        self._clusters: dict[str, KubernetesCluster] = {}
        apply(server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
        for file in sorted(FILES.rglob("*.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                apply(server, document)
        bind_queue_admin(server)
        for role in ROLES.values():
            for rule in role.all_rules():
                for verb in rule.all_verbs:
                    until(lambda role=role, rule=rule, verb=verb: self._may(role, rule, verb))  # type: ignore[misc]

    def cluster(self, role: Role) -> KubernetesCluster:
        if role.name not in self._clusters:
            settings = ConnectionSettings(kubeconfig=str(self.kubeconfig(role)), permission_hint=role.remedy)
            self._clusters[role.name] = client.connect(settings)
        return self._clusters[role.name]

    @contextlib.contextmanager
    def narrowed(self, *namespaces: str) -> Iterator[Cluster]:
        name, pods = (
            account_manifests.full_name(WORKER),
            next(rule for rule in WORKER.by_namespace if rule.target == "pods"),
        )
        for document in account_manifests.role_manifests(WORKER, account_manifests.RoleNames(), namespaces):
            apply(self.server, document)
        wide = self.admin.get(CLUSTER_ROLES, name)["rules"]
        [narrow] = [each for each in account_manifests.role_manifests(WORKER, account_manifests.RoleNames(), namespaces)
                    if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name]  # fmt: skip
        self.admin.patch(CLUSTER_ROLES, name, {"rules": narrow["rules"]})
        until(lambda: not self._may(WORKER, pods, "create"))
        try:
            yield self.cluster(WORKER)
        finally:
            self.admin.patch(CLUSTER_ROLES, name, {"rules": wide})
            until(lambda: self._may(WORKER, pods, "create"))

    @contextlib.contextmanager
    def config(self, role: Role, folder: Path) -> Iterator[Path]:  # noqa: ARG002
        yield self.kubeconfig(role)

    def close(self) -> None:
        for each in self._clusters.values():
            each.close()

    def kubeconfig(self, role: Role) -> Path:
        """Return the path of the account's kubeconfig, with a token from the API server."""
        path = self._folder / f"{role.name}.kubeconfig"
        if not path.exists():
            config = kubeconfig(self.server, self._home(role), account_manifests.full_name(role))
            config["contexts"][0]["context"]["namespace"] = TENANT
            path.write_text(json.dumps(config))
        return path

    @contextlib.contextmanager
    def without(self, role: Role, rule: PolicyRule, verb: str) -> Iterator[None]:
        resource, name, namespace = self._holder(role, rule)
        found = self.admin.get(resource, name, namespace)["rules"]
        wanted = {"apiGroups": [rule.resource.group], "resources": [rule.target]}
        wanted |= {"resourceNames": [rule.name]} if rule.name else {}
        (index,) = (at for at, each in enumerate(found) if wanted.items() <= each.items() and verb in each["verbs"])
        left = [each for each in found[index]["verbs"] if each != verb]
        less = [*found[:index], *([found[index] | {"verbs": left}] if left else []), *found[index + 1 :]]
        self.admin.patch(resource, name, {"rules": less}, namespace)
        until(lambda: not self._may(role, rule, verb))
        try:
            yield
        finally:
            self.admin.patch(resource, name, {"rules": found}, namespace)
            until(lambda: self._may(role, rule, verb))

    def name(self, role: Role) -> str:
        return f"system:serviceaccount:{self._home(role)}:{account_manifests.full_name(role)}"

    def _home(self, role: Role) -> str:
        return TENANT if role is USER else account_manifests.SYSTEM_NAMESPACE

    def _holder(self, role: Role, rule: PolicyRule) -> tuple[Resource, str, str]:
        """Return the object in the cluster that grants a rule."""
        if rule in role.lease:
            return ROLES_OF_NAMESPACES, account_manifests.full_name(role), account_manifests.LEASE_NAMESPACE
        name = f"torchq-queue-{TENANT}-of-{TENANT}" if rule in role.queue else account_manifests.full_name(role)
        return CLUSTER_ROLES, name, ""

    def _may(self, role: Role, rule: PolicyRule, verb: str) -> bool:
        """Return whether the API server allows this verb to the account."""
        namespace = account_manifests.LEASE_NAMESPACE if rule in role.lease else TENANT if role is USER else ""
        attributes = {"verb": verb, "group": rule.resource.group, "resource": rule.resource.plural,
                 "subresource": rule.subresource, "namespace": namespace if rule.resource.namespaced else "",
                 "name": rule.name or (TENANT if rule in role.queue else "")}  # fmt: skip
        spec = {"user": self.name(role), "resourceAttributes": attributes,
                "groups": ["system:serviceaccounts", "system:authenticated"]}  # fmt: skip
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        code, answer = self.server.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        assert code == 201, answer
        return bool(answer["status"]["allowed"])


def kubeconfig(server: Server, namespace: str, account: str) -> dict[str, Any]:
    """Return the kubeconfig of a ServiceAccount, with a token that the API server has issued for it."""
    path = KINDS["ServiceAccount"].path(namespace, account, "token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    code, made = server.send("POST", path, body)
    assert code == 201, made
    config: dict[str, Any] = json.loads(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": made["status"]["token"]}
    config["contexts"][0]["context"]["namespace"] = namespace
    return config


def bind_queue_admin(server: Server) -> None:
    """Create an account and bind the role of queue admins to it, as `torchq rbac --queue-admin` binds the role to a
    user.
    """
    name, home = account_manifests.full_name(QUEUE_ADMIN), account_manifests.SYSTEM_NAMESPACE
    apply(server, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}})
    for document in account_manifests.queue_admin_manifests([f"system:serviceaccount:{home}:{name}"]):
        apply(server, document)


def apply(server: Server, document: dict[str, Any]) -> None:
    """Create an object. An existing object is accepted, since each file contains the namespace that it needs."""
    path = KINDS[document["kind"]].path(document["metadata"].get("namespace", ""))
    code, answer = server.send("POST", path + "?fieldValidation=Strict", document)
    assert code == 201 or answer.get("reason") == "AlreadyExists", answer
