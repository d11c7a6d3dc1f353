"""Roles, bindings and accounts that fit each other, and the Service that users may reach.

One rule: no account gets more than the tables of coordinator.rbac.permissions grant.
"""

from collections.abc import Collection, Iterable

from coordinator.rbac.permissions import proxied
from deploy.checks.objects import Manifest, describe, of_kind, pods
from deploy.checks.pod_specs import environment

SERVICES = {"coordinator": "TORCHQ_SERVICE", "recorder": "TORCHQ_RECORDER_SERVICE"}
"""The variable with the Service that the pods of a component announce."""
ASKED = ("TORCHQ_COORDINATOR", "TORCHQ_DASHBOARD_RECORDER")
"""The variables with the URLs of the Services that dashboards ask."""


def problems(documents: Iterable[Manifest], existing: Collection[str] = ()) -> list[str]:
    """Return bindings without their roles or accounts, and users who may not reach the Services."""
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
    return wrong + _policies(found) + _proxies(found) + _powers(list(roles.values()))


def _policies(found: list[Manifest]) -> list[str]:
    """Check that each binding of an admission policy names one, and that each policy is bound."""
    made = {each["metadata"]["name"] for each in of_kind(found, "ValidatingAdmissionPolicy")}
    bindings = of_kind(found, "ValidatingAdmissionPolicyBinding")
    bound = {each["spec"]["policyName"] for each in bindings}
    return [f"admission policy {name} is not both made and bound" for name in sorted(made ^ bound)]


def _proxies(found: list[Manifest]) -> list[str]:
    """Check that the Services which leader and recorders announce are there, and are those that users may reach."""
    variables = {each.component: environment(each, found) for each in pods(found)}
    services = {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in of_kind(found, "Service")}
    announced = {
        component: variables[component][name] for component, name in SERVICES.items() if component in variables
    }
    wrong = [
        f"the {each}s announce {name}, which is not there" for each, name in announced.items() if name not in services
    ]
    own = {f"http://{name}.{namespace}.svc:8080" for namespace, name in (each.split("/") for each in services)}
    urls = {variables.get("dashboard", {}).get(name, "") for name in ASKED}
    wrong += [f"the dashboards ask {url}, which is not there" for url in sorted(urls - own - {""})]
    granted = [
        {name for rule in each["rules"] if rule["resources"] == ["services/proxy"] for name in rule["resourceNames"]}
        for each in of_kind(found, "ClusterRole")
    ]
    reachable = {component: proxied(name.partition("/")[2]) for component, name in announced.items()}
    # A release without recorders lets its users reach those that it may have later.
    later = {reachable["coordinator"].replace("-coordinator:", "-recorder:")}
    allowed = set[str]().union(*granted)
    if not allowed <= {*reachable.values(), *later}:
        wrong.append(f"users may reach {sorted(allowed)}, and need {sorted(reachable.values())}")
    return wrong


def _powers(roles: list[Manifest]) -> list[str]:
    return [
        f"{describe(role)} grants {rule['verbs']} of {rule['resources']}"
        for role in roles
        for rule in role["rules"]
        if "*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
        or (rule["resources"] == ["secrets"] and not rule.get("resourceNames"))
        or rule["apiGroups"] == ["rbac.authorization.k8s.io"]
    ]
