"""Roles, bindings and accounts that fit each other, and the Service that users may reach.

One rule: no account gets more than the tables of coordinator.rbac.permissions grant.
"""

from collections.abc import Collection, Iterable

from coordinator.rbac.permissions import proxied
from deploy.checks.objects import Manifest, describe, of_kind, pods
from deploy.checks.pod_specs import environment


def problems(documents: Iterable[Manifest], existing: Collection[str] = ()) -> list[str]:
    """Return bindings without their roles or accounts, and users who may not reach the coordinator's Service."""
    found = list(documents)
    roles = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
             for each in of_kind(found, "Role", "ClusterRole")}  # fmt: skip
    accounts = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in of_kind(found, "ServiceAccount")}
    wrong = []
    for each in of_kind(found, "RoleBinding", "ClusterRoleBinding"):
        reference = each["roleRef"]
        namespace = each["metadata"].get("namespace") if reference["kind"] == "Role" else None
        if (reference["kind"], namespace, reference["name"]) not in roles:
            wrong.append(f"{describe(each)} binds {reference['kind']} {reference['name']}, which is not there")
        for subject in each["subjects"]:
            name = subject["name"]
            if (
                subject["kind"] == "ServiceAccount"
                and name not in existing
                and (subject["namespace"], name) not in accounts
            ):
                wrong.append(f"{describe(each)} binds account {name}, which is not there")
    return wrong + _proxies(found) + _powers(list(roles.values()))


def _proxies(found: list[Manifest]) -> list[str]:
    """Check that the Service which the leader announces is there, and is the Service that users may reach."""
    [variables] = [environment(each, found) for each in pods(found) if each.component == "coordinator"]
    services = {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in of_kind(found, "Service")}
    announced = variables["TORCHQ_SERVICE"]
    wrong = [] if announced in services else [f"the coordinators announce {announced}, which is not there"]
    allowed = {name for each in of_kind(found, "ClusterRole") for rule in each["rules"]
               if rule["resources"] == ["services/proxy"] for name in rule["resourceNames"]}  # fmt: skip
    reachable = {proxied(announced.partition("/")[2])}
    return wrong + (
        [] if allowed <= reachable else [f"users may reach {sorted(allowed)}, and need {sorted(reachable)}"]
    )


def _powers(roles: list[Manifest]) -> list[str]:
    return [
        f"{describe(role)} grants {rule['verbs']} of {rule['resources']}"
        for role in roles
        for rule in role["rules"]
        if "*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
        or (rule["resources"] == ["secrets"] and not rule.get("resourceNames"))
        or rule["apiGroups"] == ["rbac.authorization.k8s.io"]
    ]
