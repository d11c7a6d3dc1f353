"""A cluster that allows an account the requests that its table grants, and refuses all other requests with the error of
a real API server.

One rule: a gatekeeper stands in front of an embedded API server, whose only account may do everything.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from coordinator.access.own_rights import REVIEWS
from coordinator.rbac.permissions import PolicyRule, Role
from crds.api_resources import PODS, SERVICE_ACCOUNTS, SERVICES, Resource
from kube import error_answers
from kube.api import Cluster

Permission = tuple[str, str]
"""A resource as `resource_name` returns it, and a verb: ("torchjobs/status", "patch")."""
SHARED = ("podgroups",)
"""Resource names that several groups share."""
VERBS = {"pages": "list", "logs": "get"}


def resource_name(group: str, plural: str, subresource: str = "") -> str:
    """Return a resource with its subresource, and with its group if several groups have this resource."""
    resource = f"{plural}.{group}" if plural in SHARED else plural
    return f"{resource}/{subresource}" if subresource else resource


def of_rule(rule: PolicyRule) -> str:
    """Return the resource of a rule."""
    return resource_name(rule.resource.group, rule.resource.plural, rule.subresource)


def permissions(role: Role) -> set[Permission]:
    """Return everything that a role grants."""
    return {(of_rule(rule), verb) for rule in role.all_rules() for verb in rule.all_verbs}


class Gatekeeper:
    """The API for one account. The gatekeeper records every request, and refuses a request without a grant as RBAC
    does.
    """

    def __init__(
        self,
        cluster: Cluster,
        role: Role,
        *,
        without: Permission | None = None,
        strict: bool = False,
        namespaces: Collection[str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._role = role
        self._granted = permissions(role) - {without}
        self._strict = strict
        """Whether a refusal fails the test: in tests about other subjects, a refusal means that the table lacks a
        rule.
        """
        self._namespaces = namespaces
        """The namespaces in which the role's namespaced rules apply; None means all namespaces."""
        self._anywhere = {(of_rule(rule), verb) for rule in role.cluster_wide for verb in rule.all_verbs}
        self.requests: set[Permission] = set()

    def create(self, resource: Resource, body: Any, namespace: str = "", **options: Any) -> Any:
        """Create an object. The gatekeeper itself answers access reviews."""
        if resource == REVIEWS:
            wanted = body["spec"]["resourceAttributes"]
            target = resource_name(wanted.get("group", ""), wanted["resource"], wanted.get("subresource", ""))
            return {"status": {"allowed": self._allowed((target, wanted["verb"]), wanted.get("namespace", ""))}}
        self._pass(resource, "create", namespace)
        return self._cluster.create(resource, body, namespace, **options)

    def patch(self, resource: Resource, name: str, patch: Any, namespace: str = "", **options: Any) -> Any:
        """Patch an object."""
        self._pass(resource, "patch", namespace, options.get("subresource", ""))
        return self._cluster.patch(resource, name, patch, namespace, **options)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Any:
        """Return an object."""
        self._pass(resource, "get", namespace)
        return self._cluster.get(resource, name, namespace)

    def delete(self, resource: Resource, name: str, namespace: str = "", **options: Any) -> None:
        """Delete an object."""
        self._pass(resource, "delete", namespace)
        self._cluster.delete(resource, name, namespace, **options)

    def account_token(self, namespace: str, account: str, audience: str, seconds: int) -> str:
        """Return a token of an account."""
        self._pass(SERVICE_ACCOUNTS, "create", namespace, "token")
        token: str = self._cluster.account_token(namespace, account, audience, seconds)  # type: ignore[attr-defined]
        return token

    def service(self, namespace: str, name: str, path: str, headers: Mapping[str, str], *patience: Any) -> Any:
        """Return the answer of a service through the API server's proxy."""
        self._pass(SERVICES, "get", namespace, "proxy")
        return self._cluster.service(namespace, name, path, headers, *patience)  # type: ignore[attr-defined]

    def logs(self, pod: str, namespace: str, *arguments: Any, **options: Any) -> Any:
        """Return the log of a pod."""
        self._pass(PODS, "get", namespace, "log")
        return self._cluster.logs(pod, namespace, *arguments, **options)

    def log_end(self, pod: str, namespace: str, *arguments: Any, **options: Any) -> Any:
        """Return the end of the log of a pod."""
        self._pass(PODS, "get", namespace, "log")
        return self._cluster.log_end(pod, namespace, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        """Check `list`, `pages` and `watch`; pass through everything that is not a request."""
        method = getattr(self._cluster, name)
        return self._collection(VERBS.get(name, name), method) if name in ("list", "pages", "watch") else method

    def _collection(self, verb: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def asking(resource: Resource, namespace: str = "", **options: Any) -> Any:
            self._pass(resource, verb, namespace)
            return method(resource, namespace, **options)

        return asking

    def _allowed(self, permission: Permission, namespace: str) -> bool:
        somewhere = self._namespaces is None or permission in self._anywhere or namespace in self._namespaces
        return somewhere and permission in self._granted

    def _pass(self, resource: Resource, verb: str, namespace: str, subresource: str = "") -> None:
        permission = resource_name(resource.group, resource.plural, subresource), verb
        self.requests.add(permission)
        if self._allowed(permission, namespace):
            return
        assert not self._strict, (
            f"coordinator/rbac/permissions.py does not grant {verb} {permission[0]} to {self._role.name}"
        )
        target = "/".join(filter(None, [resource.plural, subresource]))
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        message = (
            f'{resource.plural} is forbidden: User "torchq-{self._role.name}" cannot {verb} resource "{target}" '
            f'in API group "{resource.group}" {where}'
        )
        raise error_answers.error(403, {"message": message}, f"{verb} {target}", self._role.remedy)
