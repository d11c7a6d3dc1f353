"""What must hold between the fields of an object, in CEL, for the API server to refuse it.

One rule: the same checks as `crds.torchjob.checks`, with its words. An optional field is never read without `has()`;
nothing
beyond the standard functions is used, so that any evaluator of CEL can run them.
"""

from dataclasses import dataclass

from crds import tenantqueue
from crds.resources import resource_names
from crds.resources.amounts import PODS
from crds.schema import structural
from crds.schema.structural import Schema
from crds.torchjob import checks, processes
from crds.torchjob.tasks import AI_MASTER, LONGEST_TASK_TYPE, MASTER, MOST_TASKS, WORKER

Rule = dict[str, str]

KNOWN = (MASTER, WORKER, AI_MASTER)
_ANY_CASE = "^(?i)(" + "|".join(name.lower() for name in KNOWN) + ")$"
_OTHERS = f"t in {list(KNOWN)}"
_ALWAYS_SHORT = checks.MAX_POD_NAME - 2 - LONGEST_TASK_TYPE - len(str(MOST_TASKS - 1))
"""A job's name of so many characters makes no pod's name too long, whatever its tasks are."""


def rule(expression: str, message: str, field: str = "") -> Rule:
    """One entry of x-kubernetes-validations; `field` is the path below the node it stands at."""
    return {"rule": expression, "message": message} | ({"fieldPath": field} if field else {})


def count(task: str) -> str:
    """CEL for: how many pods a task has."""
    return f"(has({task}.numTasks) ? {task}.numTasks : 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Two things that must hold for the task type `$t`, and what is said if one does not. The second may rely on the
    first."""

    first: str
    message: str
    then: str
    other: str
    unless: str = ""
    """Where it holds, nothing is asked."""

    def rule(self, way: str, task: str, field: str) -> Rule:
        """Both as one rule, because a rule costs the API server more than what it asks. `way` has a place for them."""
        unless = f"{self.unless} || " if self.unless else ""
        first, both = f"({unless}{self.first})", f"({unless}{self.first} && {self.then})"
        found = rule((way % both).replace("$t", task), self.message, field)
        words = f"({way % first}) ? {self.other!r} : {self.message!r}"
        return found | {"messageExpression": words.replace("$t", task)}


def _each(types: str, demands: Demands, field: str) -> list[Rule]:
    """Demands on every task type in a map, with a field path of their own for those whose names are known.

    The path of a rule cannot depend on the value, so any other type is refused at the map. `*` in `field` is the type.
    """
    known = [demands.rule(f"!($t in {types}) || %s", repr(name), field.replace("*", name)) for name in KNOWN]
    return [*known, demands.rule(f"{types}.all(t, {_OTHERS} || %s)", "t", field.partition(".*")[0])]


def task_map() -> list[Rule]:
    """Rules at spec.torchTaskSpecs."""
    return [
        rule(f"self.all(t, {_OTHERS} || !t.matches('{_ANY_CASE}'))", checks.SPELLING),
        rule("self.all(a, self.all(b, a == b || !b.matches('^(?i)' + a + '$')))", checks.TWINS),
    ]


def task() -> list[Rule]:
    """Rules at one task."""
    return [
        rule(
            "!has(self.spotTaskSpec) || !has(self.spotTaskSpec.numSpotTasks) || "
            f"self.spotTaskSpec.numSpotTasks <= {count('self')}",
            checks.MANY_SPOT_TASKS,
            ".spotTaskSpec.numSpotTasks",
        )
    ]


def spec() -> list[Rule]:
    """Rules at the spec of a TorchJob."""
    tasks = "self.torchTaskSpecs"
    upstream = f"{tasks}[d.taskType]"
    endless = f"has({upstream}.restartPolicy) && {upstream}.restartPolicy == 'Always'"
    upstreams = Demands(
        unless=f"!has({tasks}[$t].dependsOn)",
        first=f"{tasks}[$t].dependsOn.all(d, d.taskType != $t && d.taskType in {tasks})",
        message=checks.UNKNOWN_UPSTREAM,
        then=f"{tasks}[$t].dependsOn.all(d, !has(d.phase) || d.phase != 'Succeeded' || !({endless}))",
        other=checks.ENDLESS_UPSTREAM,
    )
    members = Demands(
        first=f"$t in {tasks}",
        message=checks.UNKNOWN_MEMBER,
        then=f"self.minMembers[$t] <= {count(f'{tasks}[$t]')}",
        other=checks.MANY_MEMBERS,
    )
    master = f"{tasks}[{MASTER!r}]"
    return [
        *_each(tasks, upstreams, ".torchTaskSpecs.*.dependsOn"),
        rule(
            f"!({MASTER!r} in {tasks}) || !has({master}.numTasks) || {master}.numTasks == 1",
            checks.ONE_MASTER,
            f".torchTaskSpecs.{MASTER}.numTasks",
        ),
        *(
            each | {"rule": f"!has(self.minMembers) || ({each['rule']})"}
            for each in _each("self.minMembers", members, ".minMembers.*")
        ),
        rule(
            "!has(self.nprocPerNode) || !has(self.torchElasticPolicy) || !has(self.torchElasticPolicy.nprocPerNode) "
            "|| self.nprocPerNode == self.torchElasticPolicy.nprocPerNode",
            processes.ONE_VALUE,
            ".nprocPerNode",
        ),
    ]


def elastic() -> list[Rule]:
    """Rules at spec.torchElasticPolicy."""
    given = "!has(self.numMinReplicas) || !has(self.numMaxReplicas)"
    return [rule(f"{given} || self.numMinReplicas <= self.numMaxReplicas", checks.ELASTIC_RANGE, ".numMinReplicas")]


def nproc_per_node() -> list[Rule]:
    """Rules at a number of processes per pod."""
    number = f"type(self) == int && self >= 1 && self <= {processes.MOST}"
    return [rule(f"type(self) == string ? self == '{processes.GPUS}' : {number}", processes.WRONG)]


def torchjob() -> list[Rule]:
    """Rules at the root of a TorchJob, where its name is readable."""
    tasks = "self.spec.torchTaskSpecs"
    index = f"string({count(f'{tasks}[t]')} - 1)"
    name = "self.metadata.name.size()"
    fits = f"{tasks}.all(t, {name} + t.size() + {index}.size() + 2 <= {checks.MAX_POD_NAME})"
    return [rule(f"{name} <= {_ALWAYS_SHORT} || {fits}", checks.LONG_POD_NAME, ".spec.torchTaskSpecs")]


def quota() -> list[Rule]:
    """Rules at a map of quantities."""
    uncounted = "name.startsWith('limits.') || (name.startsWith('count/') && name != 'count/pods')"
    names = [PODS, *resource_names.POD_NAMES]
    known = f"name.matches('{resource_names.LIMIT}') && !name.startsWith('{resource_names.TWO_PREFIXES}')"
    divisible = f"!name.contains('/') && !(name in {['jobs', *names]})"
    whole = f"type(self[name]) != string || self[name].matches('{resource_names.WHOLE}')"
    return [
        rule(f"self.all(name, !({uncounted}))", tenantqueue.UNCOUNTED),
        rule(f"self.all(name, {uncounted} || ({known}))", resource_names.UNKNOWN),
        rule(f"self.all(name, {divisible} || {whole})", resource_names.DIVIDED),
        rule("self.all(name, !('requests.' + name in self))", tenantqueue.TWICE),
        rule(f"{names}.filter(name, name in self).size() <= 1", tenantqueue.TWICE),
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


def attach(node: Schema, path: str, rules: list[Rule]) -> None:
    """Put rules at the node that a path names."""
    structural.below(node, path).setdefault("x-kubernetes-validations", []).extend(rules)
