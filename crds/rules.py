"""What must hold between the fields of an object, in CEL, for the API server to refuse it.

One rule: the same checks as `crds.checks`, with its words. An optional field is never read without `has()`; nothing
beyond the standard functions is used, so that any evaluator of CEL can run them.
"""

from collections.abc import Mapping
from typing import Any

from crds import checks, tenantqueue
from crds.tasks import AI_MASTER, MASTER, WORKER

Rule = dict[str, str]

KNOWN = (MASTER, WORKER, AI_MASTER)
_ANY_CASE = "^(?i)(" + "|".join(name.lower() for name in KNOWN) + ")$"
_OTHERS = f"t in {list(KNOWN)}"


def rule(expression: str, message: str, field: str = "") -> Rule:
    """One entry of x-kubernetes-validations; `field` is the path below the node it stands at."""
    return {"rule": expression, "message": message} | ({"fieldPath": field} if field else {})


def _count(task: str) -> str:
    return f"(has({task}.numTasks) ? {task}.numTasks : 1)"


def _each(types: str, expression: str, message: str, field: str, below: str = "") -> list[Rule]:
    """A rule over every task type `$t` in a map, with a field path of their own for those whose names are known.

    The path of a rule cannot depend on the value, so any other type is refused at the map.
    """
    known = [
        rule(f"!({name!r} in {types}) || {expression.replace('$t', repr(name))}", message, f"{field}.{name}{below}")
        for name in KNOWN
    ]
    return [*known, rule(f"{types}.all(t, {_OTHERS} || {expression.replace('$t', 't')})", message, field)]


def task_map() -> list[Rule]:
    """Rules at spec.torchTaskSpecs."""
    return [
        rule(f"self.all(t, !t.matches('{_ANY_CASE}') || {_OTHERS})", checks.SPELLING),
        rule("self.all(a, self.all(b, a == b || !b.matches('^(?i)' + a + '$')))", checks.TWINS),
    ]


def task() -> list[Rule]:
    """Rules at one task."""
    return [
        rule(
            "!has(self.spotTaskSpec) || !has(self.spotTaskSpec.numSpotTasks) || "
            f"self.spotTaskSpec.numSpotTasks <= {_count('self')}",
            checks.MANY_SPOT_TASKS,
            ".spotTaskSpec.numSpotTasks",
        )
    ]


def spec() -> list[Rule]:
    """Rules at the spec of a TorchJob."""
    tasks = "self.torchTaskSpecs"
    upstreams = (
        f"(!has({tasks}[$t].dependsOn) || {tasks}[$t].dependsOn.all(d, d.taskType != $t && d.taskType in {tasks}))"
    )
    upstream = f"{tasks}[d.taskType]"
    endless = f"d.taskType in {tasks} && has({upstream}.restartPolicy) && {upstream}.restartPolicy == 'Always'"
    ends = (
        f"(!has({tasks}[$t].dependsOn) || {tasks}[$t].dependsOn.all(d, "
        f"!has(d.phase) || d.phase != 'Succeeded' || !({endless})))"
    )
    declared = f"$t in {tasks}"
    enough = f"(!($t in {tasks}) || self.minMembers[$t] <= {_count(f'{tasks}[$t]')})"
    members = [
        *_each("self.minMembers", declared, checks.UNKNOWN_MEMBER, ".minMembers"),
        *_each("self.minMembers", enough, checks.MANY_MEMBERS, ".minMembers"),
    ]
    return [
        *_each(tasks, upstreams, checks.UNKNOWN_UPSTREAM, ".torchTaskSpecs", ".dependsOn"),
        *_each(tasks, ends, checks.ENDLESS_UPSTREAM, ".torchTaskSpecs", ".dependsOn"),
        rule(
            f"!('{MASTER}' in {tasks}) || {_count(f'{tasks}[{MASTER!r}]')} == 1",
            checks.ONE_MASTER,
            f".torchTaskSpecs.{MASTER}.numTasks",
        ),
        *(each | {"rule": f"!has(self.minMembers) || ({each['rule']})"} for each in members),
    ]


def elastic() -> list[Rule]:
    """Rules at spec.torchElasticPolicy."""
    given = "!has(self.numMinReplicas) || !has(self.numMaxReplicas)"
    return [rule(f"{given} || self.numMinReplicas <= self.numMaxReplicas", checks.ELASTIC_RANGE, ".numMinReplicas")]


def torchjob() -> list[Rule]:
    """Rules at the root of a TorchJob, where its name is readable."""
    tasks = "self.spec.torchTaskSpecs"
    index = f"string({_count(f'{tasks}[t]')} - 1)"
    length = f"self.metadata.name.size() + t.size() + {index}.size() + 2 <= {checks.MAX_POD_NAME}"
    return [rule(f"{tasks}.all(t, {length})", checks.LONG_POD_NAME, ".spec.torchTaskSpecs")]


def quota() -> list[Rule]:
    """Rules at a map of quantities."""
    uncounted = "name == 'pods' || name.startsWith('limits.') || name.startsWith('count/')"
    return [
        rule(f"self.all(name, !({uncounted}))", tenantqueue.UNCOUNTED),
        rule("self.all(name, !('requests.' + name in self))", tenantqueue.TWICE),
    ]


def tenant_queue() -> list[Rule]:
    """Rules at the spec of a TenantQueue."""
    quota = "has(self.quota) && self.quota.size() > 0"
    return [
        rule(f"!has(self.cohort) || ({quota})", tenantqueue.NO_QUOTA, ".cohort"),
        rule(
            "has(self.cohort) || !has(self.borrowingLimit) || self.borrowingLimit.size() == 0",
            tenantqueue.NO_COHORT,
            ".borrowingLimit",
        ),
    ]


def attach(node: Mapping[str, Any], path: str, rules: list[Rule]) -> None:
    """Put rules at the node a path names: `spec.torchTaskSpecs.*` is the value of that map."""
    for step in filter(None, path.split(".")):
        node = node["additionalProperties"] if step == "*" else node["properties"][step]
    assert isinstance(node, dict)
    node.setdefault("x-kubernetes-validations", []).extend(rules)
