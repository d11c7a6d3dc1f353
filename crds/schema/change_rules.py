"""Which fields of a TorchJob's spec may change, and when.

One rule: this table alone says so, but for the size of an elastic job (`_resized`) and for a deadline that comes
sooner (`_lowered`); the CEL rules at the root, where the status is readable, are made from it.

A job waits until it is admitted (and again after it was suspended or sent back), is admitted while `status.admission`
is there, and is finished in phase Succeeded or Failed. The state before the change counts.

A job whose deadline comes soon enough may be admitted into room that is kept for another job
(`queues.picking.backfill`). So
its deadline may not move to a later moment from the time at which it may be chosen for that, phase Queued, until it has
given the room back.
"""

from dataclasses import dataclass
from typing import Literal

from crds.schema import cel_rules
from crds.schema.cel_rules import Rule
from crds.torchjob.conditions import FINISHED
from crds.torchjob.tasks import WORKER, TaskSpec

State = Literal["waiting", "admitted", "finished"]
_Known = Literal[State, "queued"]
"""queued: it waits, and its status says so."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the spec and the states in which it may change."""

    path: str
    waiting: bool
    admitted: bool
    finished: bool

    def may_change(self, state: State) -> bool:
        """Whether it may change in a state."""
        return {"waiting": self.waiting, "admitted": self.admitted, "finished": self.finished}[state]


TABLE = (
    #                                     waiting admitted finished
    Field("torchTaskSpecs", True, False, False),
    Field("minMembers", True, False, False),
    Field("schedulingPolicy.queue", True, False, False),
    Field("schedulingPolicy.priority", True, True, False),
    Field("schedulingPolicy.priorityClassName", True, True, False),
    Field("schedulingPolicy.hold", True, False, False),
    Field("schedulingPolicy.gangScheduler", True, False, False),
    Field("schedulingPolicy.gangQueue", True, False, False),
    Field("torchElasticPolicy", True, False, False),
    Field("nprocPerNode", True, False, False),
    Field("restartScope", True, False, False),
    Field("backoffLimit", True, True, False),
    Field("activeDeadlineSeconds", True, False, False),
    Field("ttlSecondsAfterFinished", True, True, True),
    Field("cleanPodPolicy", True, True, False),
    Field("suspend", True, True, False),
)
"""Every field of the spec."""
RESIZABLE = "torchTaskSpecs"
"""Of an admitted job with a `torchElasticPolicy`, the Worker's `numTasks` may change in it, within the policy's bounds.
"""
DEADLINE = "activeDeadlineSeconds"
"""Of a queued or an admitted job it may be set and lowered."""

_STATES: dict[_Known, tuple[str, str]] = {
    "finished": (
        f"has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in {list(FINISHED)}",
        "may not change after the job has finished: submit a new job",
    ),
    "admitted": (
        "has(oldSelf.status) && has(oldSelf.status.admission)",
        "may not change while the job is admitted: set spec.suspend to true and wait for phase Suspended "
        "(an elastic job may change Worker.numTasks, from numMinReplicas to numMaxReplicas; "
        "activeDeadlineSeconds may be set or lowered)",
    ),
    "queued": (
        "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Queued'",
        "may not be raised or removed while the job is queued, because room that is kept for another job may be lent "
        "to it until then: set spec.suspend to true and wait for phase Suspended",
    ),
}
"""How a state is known, the first one that holds counts; and what is said of a field that it settles."""
SETTLED = "a field of the spec may not change any more"
"""What is said where a server does not work out which."""


def transition() -> Rule:
    """The table as a transition rule for the root of a TorchJob.

    It is one rule, because the API server runs it at every change of a status, too, and a rule for each field made up a
    third of what such a change costs kube-apiserver. The price: its field path is the spec, and the message names the
    field. What is true nearly always is asked first: a job without a status waits, and that is cheap to see; and a
    change of a status leaves the spec alone.
    """
    kept = {state: " && ".join(_kept(path, state) for path in _settled(state)) for state in _STATES}
    allowed = _by_state(kept, "true")
    words = _by_state({state: _words(state) for state in _STATES}, repr(SETTLED))
    found = cel_rules.rule(f"!has(oldSelf.status) || self.spec == oldSelf.spec || ({allowed})", SETTLED, ".spec")
    return found | {"messageExpression": words}


def _settled(state: _Known) -> list[str]:
    return [DEADLINE] if state == "queued" else [field.path for field in TABLE if not field.may_change(state)]


def _by_state(expressions: dict[_Known, str], otherwise: str) -> str:
    """CEL for: the expression of the first state that holds."""
    for state, (when, _) in reversed(_STATES.items()):
        otherwise = f"{when} ? {expressions[state]} : ({otherwise})"
    return otherwise


def _words(state: _Known) -> str:
    """CEL for: the changed fields that the state settles, and what it means for them."""
    names = " + ".join(f"({_kept(path, state)} ? '' : '{path} ')" for path in _settled(state))
    return f"{names} + '{_STATES[state][1]}'"


def _kept(path: str, state: _Known) -> str:
    """CEL for: a field has not changed, or only as it may."""
    same = _unchanged("self.spec", "oldSelf.spec", path)
    if state != "finished" and path in (RESIZABLE, DEADLINE):
        return f"({same} || {_resized() if path == RESIZABLE else _lowered()})"
    return same


def _lowered() -> str:
    """CEL for: the deadline is set, or comes sooner."""
    new, old = f"self.spec.{DEADLINE}", f"oldSelf.spec.{DEADLINE}"
    return f"(has({new}) && (!has({old}) || {new} <= {old}))"


def _resized() -> str:
    """CEL for: a job is elastic, and of its tasks at most the number of its workers has changed, within its bounds."""
    new, old, bounds = f"self.spec.{RESIZABLE}", f"oldSelf.spec.{RESIZABLE}", "self.spec.torchElasticPolicy"
    worker, before, count = f"{new}[{WORKER!r}]", f"{old}[{WORKER!r}]", cel_rules.count(f"{new}[{WORKER!r}]")
    others = (str(each.alias) for name, each in TaskSpec.model_fields.items() if name != "num_tasks")
    return "({})".format(
        " && ".join(
            (
                f"has({bounds}) && {new}.size() == {old}.size() && {WORKER!r} in {new} && {WORKER!r} in {old}",
                f"(!has({bounds}.numMinReplicas) || {bounds}.numMinReplicas <= {count})",
                f"(!has({bounds}.numMaxReplicas) || {bounds}.numMaxReplicas >= {count})",
                f"{new}.all(t, t == {WORKER!r} || (t in {old} && {new}[t] == {old}[t]))",
                *(_unchanged(worker, before, each) for each in others),
            )
        )
    )


def _unchanged(new: str, old: str, path: str) -> str:
    """CEL for: an optional field of two values is absent in both, or equal."""
    there, before = _has(new, path), _has(old, path)
    return f"({there} ? {before} && {new}.{path} == {old}.{path} : !({before}))"


def _has(root: str, path: str) -> str:
    """CEL for: every step of the path is there."""
    steps = path.split(".")
    return " && ".join(f"has({root}.{'.'.join(steps[:depth])})" for depth in range(1, len(steps) + 1))
