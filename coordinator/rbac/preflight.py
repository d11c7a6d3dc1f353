"""The check at the start of a process that its account has all needed permissions.

One rule: one message names all missing permissions. If the server cannot answer (it is unreachable, or does not serve
access reviews), the process starts all the same, and the failing request itself reports the problem.
"""

import logging
from collections.abc import Collection, Iterator

from coordinator.access import own_rights
from coordinator.errors import CoordinatorError
from coordinator.rbac.permissions import COORDINATOR, WORKER, PolicyRule, Role
from coordinator.settings import Settings
from crds.api_resources import NODES
from kube import errors
from kube.api import Cluster

log = logging.getLogger(__name__)

Question = tuple[PolicyRule, str, str]
"""A rule, one of its verbs, and a namespace (empty: all)."""


class PermissionMissing(CoordinatorError):
    """The account lacks a permission that this process needs."""


def check(cluster: Cluster, role: Role, settings: Settings) -> None:
    """Raise PermissionMissing, with every verb and resource that the role needs and this account does not have."""
    try:
        missing = [question for question in questions(role, settings) if not _is_allowed(cluster, question)]
    except errors.ClusterError as error:
        log.debug("permissions are not checked beforehand: %s", error)
        return
    if missing and _in_some_namespaces(role, missing):
        log.info(
            "this account may create pods in some namespaces only: a job elsewhere reports PodsForbidden until an "
            "admin grants its namespace with `torchq rbac worker --namespaces`"
        )
    elif missing:
        raise PermissionMissing(f"this account is not allowed to {'; '.join(map(_format, missing))}. {role.remedy}")


def _in_some_namespaces(role: Role, missing: Collection[Question]) -> bool:
    """Return whether the permissions missing in the whole cluster are those that `torchq rbac worker --namespaces`
    grants by namespace."""
    needed = (rule for rule in role.by_namespace if not rule.optional)
    by_namespace = {(rule.resource, rule.target, verb) for rule in needed for verb in rule.all_verbs}
    return role is WORKER and {(rule.resource, rule.target, verb) for rule, verb, _ in missing} == by_namespace


def questions(role: Role, settings: Settings) -> Iterator[Question]:
    """Yield one question for each verb that the process needs."""
    for rule in role.rules:
        if not rule.optional and not (role is COORDINATOR and rule.resource is NODES and settings.pool != "nodes"):
            yield from ((rule, verb, "") for verb in rule.all_verbs)
    for rule in role.lease:
        if not rule.optional:
            yield from ((rule, verb, settings.lease_namespace) for verb in rule.all_verbs)


def _is_allowed(cluster: Cluster, question: Question) -> bool:
    rule, verb, namespace = question
    target = own_rights.AccessQuestion(verb, rule.resource, namespace, rule.name, rule.subresource)
    return own_rights.is_allowed(cluster, target)


def _format(question: Question) -> str:
    rule, verb, namespace = question
    group = f" ({rule.resource.group})" if rule.resource.group else ""
    return f"{verb} {rule.target}{group}" + (f" in namespace {namespace}" if namespace else "")
