"""Validation rules that span several fields of an object, in CEL for the API server.

One rule: these rules are the checks of `crds.torchjob.checks`, with the same messages. An optional field is never read
without `has()`. The rules use only standard functions, so that every CEL evaluator can run them.
"""

from dataclasses import dataclass

from crds import tenantqueue
from crds.resources import resource_names
from crds.resources.amounts import PODS
from crds.schema import structural
from crds.schema.structural import Schema
from crds.torchjob import checks, launched_processes
from crds.torchjob.jobspec import DEFAULT_GRACE
from crds.torchjob.rendezvous_task import MOST_OTHERS
from crds.torchjob.tasks import AI_MASTER, LONGEST_TASK_TYPE, MASTER, MOST_TASKS, RENDEZVOUS, WORKER

Rule = dict[str, str | bool]
_FULL_MEGABYTE = f"{{0}} == 0 || {{0}} >= {10**6}"

NAMED_TYPES = (MASTER, WORKER, AI_MASTER)
_ANY_CASE = "^(?i)(" + "|".join(name.lower() for name in NAMED_TYPES) + ")$"
_OTHERS = f"t in {list(NAMED_TYPES)}"
_MOST_SECONDS = 2**31 - 1
_ALWAYS_SHORT = checks.MAX_POD_NAME - 2 - LONGEST_TASK_TYPE - len(str(MOST_TASKS - 1))
"""Length of a job's name up to which no pod's name is too long, whatever the job's tasks are."""


def rule(expression: str, message: str, field: str = "") -> Rule:
    """Return an entry of x-kubernetes-validations; `field` is a path relative to the node with the rule."""
    words: Rule = {"rule": expression, "message": message}
    return words | ({"fieldPath": field} if field else {})


def count(task: str) -> str:
    """Return CEL for the number of pods of a task."""
    return f"(has({task}.numTasks) ? {task}.numTasks : 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRule:
    """Two conditions on the task type `$t`, each with the message if it is false.

    The second condition may rely on the first.
    """

    first: str
    message: str
    then: str
    other: str
    unless: str = ""
    """If this expression is true, both conditions are skipped."""

    def rule(self, way: str, task: str, field: str) -> Rule:
        """Return both conditions as one rule, because a rule costs the API server more than a condition.

        `way` is the expression around the conditions, with `%s` in their place.
        """
        unless = f"{self.unless} || " if self.unless else ""
        first, both = f"({unless}{self.first})", f"({unless}{self.first} && {self.then})"
        combined = rule((way % both).replace("$t", task), self.message, field)
        message_expression = f"({way % first}) ? {self.other!r} : {self.message!r}"
        return combined | {"messageExpression": message_expression.replace("$t", task)}


def _task_type_rules(types: str, demands: PairedRule, field: str) -> list[Rule]:
    """Return the rules for every task type in a map.

    The field path of a rule cannot depend on the value. So each of NAMED_TYPES has a rule with its own field path, and
    the rule for all other types has the path of the map. `*` in `field` stands for the type.
    """
    named_rules = [
        demands.rule(f"!($t in {types}) || %s", repr(name), field.replace("*", name)) for name in NAMED_TYPES
    ]
    return [*named_rules, demands.rule(f"{types}.all(t, {_OTHERS} || %s)", "t", field.partition(".*")[0])]


def task_map() -> list[Rule]:
    """Return the rules at spec.torchTaskSpecs."""
    return [
        rule(f"self.all(t, {_OTHERS} || !t.matches('{_ANY_CASE}'))", checks.SPELLING),
        rule("self.all(a, self.all(b, a == b || !b.matches('^(?i)' + a + '$')))", checks.TWINS),
    ]


def task() -> list[Rule]:
    """Return the rules at one task."""
    return [
        rule(
            "!has(self.spotTaskSpec) || !has(self.spotTaskSpec.numSpotTasks) || "
            f"self.spotTaskSpec.numSpotTasks <= {count('self')}",
            checks.MANY_SPOT_TASKS,
            ".spotTaskSpec.numSpotTasks",
        )
    ]


def spec() -> list[Rule]:
    """Return the rules at the spec of a TorchJob."""
    tasks = "self.torchTaskSpecs"
    upstream = f"{tasks}[d.taskType]"
    pod = f"{upstream}.template.spec"
    endless = (
        f"has({upstream}.restartPolicy) ? {upstream}.restartPolicy == 'Always' : "
        f"has({pod}.restartPolicy) && {pod}.restartPolicy == 'Always'"
    )
    upstreams = PairedRule(
        unless=f"!has({tasks}[$t].dependsOn)",
        first=f"{tasks}[$t].dependsOn.all(d, d.taskType != $t && d.taskType in {tasks})",
        message=checks.UNKNOWN_UPSTREAM,
        then=f"{tasks}[$t].dependsOn.all(d, !has(d.phase) || d.phase != 'Succeeded' || !({endless}))",
        other=checks.ENDLESS_UPSTREAM,
    )
    members = PairedRule(
        first=f"$t in {tasks}",
        message=checks.UNKNOWN_MEMBER,
        then=f"self.minMembers[$t] <= {count(f'{tasks}[$t]')}",
        other=checks.MANY_MEMBERS,
    )
    master = f"{tasks}[{MASTER!r}]"
    return [
        *_task_type_rules(tasks, upstreams, ".torchTaskSpecs.*.dependsOn"),
        rule(
            f"!({MASTER!r} in {tasks}) || !has({master}.numTasks) || {master}.numTasks == 1",
            checks.ONE_MASTER,
            f".torchTaskSpecs.{MASTER}.numTasks",
        ),
        *(
            member_rule | {"rule": f"!has(self.minMembers) || ({member_rule['rule']})"}
            for member_rule in _task_type_rules("self.minMembers", members, ".minMembers.*")
        ),
        rule(
            "!has(self.nprocPerNode) || !has(self.torchElasticPolicy) || !has(self.torchElasticPolicy.nprocPerNode) "
            "|| self.nprocPerNode == self.torchElasticPolicy.nprocPerNode",
            launched_processes.ONE_VALUE,
            ".nprocPerNode",
        ),
        _shutdown_within_grace(),
        rule(
            "!has(self.modelInputs) || "
            "self.modelInputs.all(a, self.modelInputs.exists_one(b, b.modelName == a.modelName))",
            checks.MODEL_TWICE,
            ".modelInputs",
        ),
    ]


def _shutdown_within_grace() -> Rule:
    """Return the rule that the processes of a worker have ended before its pod is killed."""
    limit, worker = "self.torchElasticPolicy.shutdownTimeoutSeconds", f"self.torchTaskSpecs.{WORKER}"
    grace = f"{worker}.template.spec.terminationGracePeriodSeconds"
    is_given = f"has({grace}) && type({grace}) == int"
    expression = (
        f"!has(self.torchElasticPolicy) || !has({limit}) || !has({worker}) || "
        f"{limit} < ({is_given} ? {grace} : {DEFAULT_GRACE})"
    )
    pod_seconds = f"({is_given} ? {_digits(grace, _MOST_SECONDS)} : '{DEFAULT_GRACE}')"
    message = f"'{checks.LONG_SHUTDOWN}: ' + {_digits(limit, _MOST_SECONDS)} + ' is not less than ' + {pod_seconds}"
    found = rule(expression, checks.LONG_SHUTDOWN, ".torchElasticPolicy.shutdownTimeoutSeconds")
    return found | {"messageExpression": message.replace("of the Worker's", "of the Worker\\'s")}


def elastic() -> list[Rule]:
    """Return the rules at spec.torchElasticPolicy."""
    one_sided = "!has(self.numMinReplicas) || !has(self.numMaxReplicas)"
    is_off = "!has(self.autoscale) || self.autoscale != 'Idle'"
    return [
        rule(f"{one_sided} || self.numMinReplicas <= self.numMaxReplicas", checks.ELASTIC_RANGE, ".numMinReplicas"),
        rule(f"{is_off} || has(self.numMaxReplicas)", checks.NO_MAXIMUM, ".autoscale"),
        rule(
            f"{is_off} || {one_sided} || self.numMinReplicas != self.numMaxReplicas",
            checks.NOTHING_TO_SCALE,
            ".autoscale",
        ),
    ]


def hang_timeout() -> list[Rule]:
    """Return the rules at spec.health.hangTimeoutSeconds."""
    return [rule(f"self == 0 || self >= {checks.SHORTEST_HANG}", checks.SHORT_HANG)]


def worker_bounds() -> list[Rule]:
    """Return the rules at the spec of a TorchJob that are newer than stored jobs."""
    policy, workers, members = "self.torchElasticPolicy", f"self.torchTaskSpecs.{WORKER}", f"self.minMembers.{WORKER}"
    least, most, step = (f"{policy}.{name}" for name in ("numMinReplicas", "numMaxReplicas", "replicaStep"))
    number = count(workers)
    applies = f"has({policy}) && has({workers})"
    on_grid = f"{number} >= {least} && (!has({step}) || ({number} - {least}) % {step} == 0)"
    allowed = f"(!has({least}) || ({on_grid})) && (!has({most}) || {number} <= {most})"
    low, high, steps = (_digits(field) for field in (least, most, step))
    bounds = (
        f"'must be ' + (has({least}) ? (has({most}) ? 'from ' + {low} + ' to ' + {high} : {low} + ' or more') + "
        f"(has({step}) && {step} > 1 ? ', in steps of ' + {steps} : '') : 'at most ' + {high}) + "
        f"': {checks.WORKER_BOUNDS}'"
    )
    is_empty = f"(has({least}) && has({most}) && {least} > {most})"  # a rule of its own says so
    size = later(
        f"!({applies}) || {is_empty} || ({allowed})",
        unchanged("torchElasticPolicy", f"torchTaskSpecs.{WORKER}.numTasks"),
        checks.WORKER_BOUNDS,
        f".torchTaskSpecs.{WORKER}.numTasks",
    )
    return [
        later(
            f"!has({policy}) || has({workers})",
            unchanged("torchElasticPolicy"),
            checks.NO_WORKER,
            ".torchElasticPolicy",
        ),
        _room_for_store(policy),
        size | {"messageExpression": bounds},
        later(
            f"!has({policy}) || !has({least}) || !has(self.minMembers) || !has({members}) || {members} <= {least}",
            unchanged("torchElasticPolicy", f"minMembers.{WORKER}"),
            checks.MANY_LEAST_WORKERS,
            f".minMembers.{WORKER}",
        ),
    ]


def _room_for_store(policy: str) -> Rule:
    """Return the rule that an elastic job can have its task Rendezvous, which it may also declare."""
    tasks, mode = "self.torchTaskSpecs", f"{policy}.mode"
    others = f"{tasks}.size() <= {MOST_OTHERS} && !{tasks}.exists(t, t.matches('^(?i){RENDEZVOUS}$'))"
    valid = f"!has({policy}) || (has({mode}) && {mode} != '{RENDEZVOUS}') || has({tasks}.{RENDEZVOUS}) || ({others})"
    same = f"{unchanged('torchElasticPolicy')} && {tasks}.size() == oldSelf.value().torchTaskSpecs.size()"
    return later(valid, same, checks.NO_ROOM_FOR_STORE, ".torchTaskSpecs")


def _digits(number: str, most: int = MOST_TASKS) -> str:
    """Return CEL for the text of a number from 0 to `most`.

    An API server takes the text of `string()` for unlimited, so that every message with it exceeds the cost budget.
    """
    places = (10**exponent for exponent in reversed(range(len(str(most)))))
    digit = "'0123456789'.substring({0} / {1} % 10, {0} / {1} % 10 + 1)"
    digits = (
        f"({number} < {place} ? '' : {digit.format(number, place)})" if place > 1 else digit.format(number, place)
        for place in places
    )
    return f"({' + '.join(digits)})"


def later(valid: str, same: str, message: str, field: str) -> Rule:
    """Return a rule that is newer than stored objects: it does not hold for a change that leaves its fields the same.

    `same` is CEL that is true for such a change.
    """
    return rule(f"{valid} || (oldSelf.hasValue() && {same})", message, field) | {"optionalOldSelf": True}


def unchanged(*paths: str) -> str:
    """Return CEL that is true if none of the fields has changed, for `later`."""
    return " && ".join(absent_or_equal("self", "oldSelf.value()", path) for path in paths)


def absent_or_equal(new: str, old: str, path: str) -> str:
    """Return CEL that is true if an optional field is absent in both values, or equal."""
    present, present_before = _has(new, path), _has(old, path)
    # An API server bounds the brackets of a rule, and the field table has one such expression for each field.
    absent_before = f"!({present_before})" if "." in path else f"!{present_before}"
    return f"({present} ? {present_before} && {new}.{path} == {old}.{path} : {absent_before})"


def _has(root: str, path: str) -> str:
    """Return CEL that is true if every step of the path exists."""
    steps = path.split(".")
    return " && ".join(f"has({root}.{'.'.join(steps[:depth])})" for depth in range(1, len(steps) + 1))


def nproc_per_node() -> list[Rule]:
    """Return the rules at a number of processes per pod."""
    number = f"type(self) == int && self >= 1 && self <= {launched_processes.MOST}"
    return [rule(f"type(self) == string ? self == '{launched_processes.GPUS}' : {number}", launched_processes.WRONG)]


def torchjob() -> list[Rule]:
    """Return the rules at the root of a TorchJob, where the name is readable."""
    tasks = "self.spec.torchTaskSpecs"
    index = f"string({count(f'{tasks}[t]')} - 1)"
    name = "self.metadata.name.size()"
    fits = f"{tasks}.all(t, {name} + t.size() + {index}.size() + 2 <= {checks.MAX_POD_NAME})"
    return [rule(f"{name} <= {_ALWAYS_SHORT} || {fits}", checks.LONG_POD_NAME, ".spec.torchTaskSpecs")]


def quota() -> list[Rule]:
    """Return the rules at a map of quantities."""
    uncounted = "name.startsWith('limits.') || (name.startsWith('count/') && name != 'count/pods')"
    names = [PODS, *resource_names.POD_NAMES]
    is_resource = f"name.matches('{resource_names.LIMIT}') && !name.startsWith('{resource_names.TWO_PREFIXES}')"
    divisible = f"!name.contains('/') && !(name in {['jobs', *names]})"
    whole = f"type(self[name]) != string || self[name].matches('{resource_names.WHOLE}')"
    return [
        rule(f"self.all(name, !({uncounted}))", tenantqueue.UNCOUNTED),
        rule(f"self.all(name, {uncounted} || ({is_resource}))", resource_names.UNKNOWN),
        rule(f"self.all(name, {divisible} || {whole})", resource_names.DIVIDED),
        _meant(resource_names.BYTES, resource_names.TINY, _FULL_MEGABYTE, resource_names.FEW_BYTES),
        _meant("cpu", resource_names.HUGE, f"{{}} <= {resource_names.MOST_CPUS}", resource_names.MANY_CPUS),
        rule("self.all(name, !('requests.' + name in self))", tenantqueue.TWICE),
        rule(f"{names}.filter(name, name in self).size() <= 1", tenantqueue.TWICE),
    ]


def _meant(resources: str, pattern: str, number_is_meant: str, message: str) -> Rule:
    """Return the rule at a map of quantities that no text for one of the resources matches a pattern, unless it is 0.

    `resources` is a pattern of their names. The rule is newer than stored objects, so it does not hold for an entry
    that is unchanged (`later`).
    """
    other, value = f"!name.matches('^(requests[.])?({resources})$')", _is_meant("self[name]", pattern, number_is_meant)
    before = "oldSelf.value()"
    same = f"(oldSelf.hasValue() && name in {before} && {before}[name] == self[name])"
    return rule(f"self.all(name, {other} || {value} || {same})", message) | {"optionalOldSelf": True}


def _is_meant(quantity: str, pattern: str, number_is_meant: str) -> str:
    text = f"!{quantity}.matches('{pattern}') || {quantity}.matches('{resource_names.NOUGHT}')"
    return f"(type({quantity}) == string ? {text} : {number_is_meant.format(quantity)})"


def bytes_of_container() -> list[Rule]:
    """Return the rules at a quantity of bytes in a pod template.

    These rules do not read the old value, which a rule below a list cannot. An API server skips these rules for an
    unchanged list of containers, so stored jobs keep their quantities.
    """
    digits = _digits("self", 10**6 - 1)
    number = f"(type(self) == string ? self.find('^[1-9][0-9]*([.][0-9]+)?') : {digits})"
    proposal = f"type(self) == string && !self.matches('^[1-9]') ? '' : '; did you mean ' + {number} + 'Mi?'"
    found = rule(_is_meant("self", resource_names.TINY, _FULL_MEGABYTE), resource_names.FEW_BYTES)
    return [found | {"messageExpression": f"{resource_names.FEW_BYTES!r} + ({proposal})"}]


def tenant_queue() -> list[Rule]:
    """Return the rules at the spec of a TenantQueue."""
    quota = "has(self.quota) && self.quota.size() > 0"
    return [
        rule(f"!has(self.cohort) || ({quota})", tenantqueue.NO_QUOTA, ".cohort"),
        rule(
            "has(self.cohort) || !has(self.borrowingLimit) || self.borrowingLimit.size() == 0",
            tenantqueue.NO_COHORT,
            ".borrowingLimit",
        ),
        rule(
            "!has(self.gangQueue) || self.gangQueue == '' || !has(self.gangQueues) || self.gangQueues.size() == 0 || "
            "self.gangQueue in self.gangQueues",
            tenantqueue.NOT_LISTED,
            ".gangQueue",
        ),
    ]


def unchangeable(message: str) -> list[Rule]:
    """Return the rule at a spec that never changes."""
    return [rule("self == oldSelf", message)]


def attach(node: Schema, path: str, rules: list[Rule]) -> None:
    """Add rules to the schema node at a path."""
    structural.below(node, path).setdefault("x-kubernetes-validations", []).extend(rules)
