"""The fields of a TorchJob's spec that may change in each state of the job.

One rule: this table alone decides, with four exceptions: the size of an elastic job (`_resizes_workers`), an earlier
deadline (`_lowers_deadline`), the end of the suspension of a finished job (`_ends_suspension`), and a cancellation,
which is final (`one_way`). The CEL rule at the root, where the status is readable, is generated
from the table. The row of the elastic policy covers those fields of the policy that have no row of their own.

A job is waiting until it is admitted, and again after it was suspended or sent back to its queue. A job is admitted
while it has `status.admission`. A job is finished in phase Succeeded or Failed. The state of the job before the change
decides.

A job with a short deadline may be admitted into room that is reserved for another job (`queues.picking.backfill`). So
the deadline of a job may not become later from phase Queued, in which the job may be picked for that room, until the
job has released the room.
"""

from dataclasses import dataclass
from typing import Literal

from crds.schema import cel_rules
from crds.schema.cel_rules import Rule
from crds.torchjob.conditions import FINISHED
from crds.torchjob.jobspec import TorchElasticPolicy
from crds.torchjob.tasks import WORKER, TaskSpec

State = Literal["waiting", "admitted", "finished"]
_FieldState = Literal[State, "queued"]
"""The states of the table, and queued: a waiting job in phase Queued."""


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of the spec and the states in which it may change."""

    path: str
    waiting: bool
    admitted: bool
    finished: bool

    def may_change(self, state: State) -> bool:
        """Return whether the field may change in a state."""
        return {"waiting": self.waiting, "admitted": self.admitted, "finished": self.finished}[state]


TABLE = (
    #                                     waiting admitted finished
    SpecField("torchTaskSpecs", True, False, False),
    SpecField("minMembers", True, False, False),
    SpecField("schedulingPolicy.queue", True, False, False),
    SpecField("schedulingPolicy.priority", True, True, False),
    SpecField("schedulingPolicy.priorityClassName", True, True, False),
    SpecField("schedulingPolicy.hold", True, False, False),
    SpecField("schedulingPolicy.gangScheduler", True, False, False),
    SpecField("schedulingPolicy.gangQueue", True, False, False),
    SpecField("schedulingPolicy.topology", True, False, False),
    SpecField("schedulingPolicy.checkpointSeconds", True, True, False),
    SpecField("torchElasticPolicy", True, False, False),
    SpecField("torchElasticPolicy.autoscale", True, True, False),
    SpecField("torchElasticPolicy.resizeEverySeconds", True, True, False),
    SpecField("torchElasticPolicy.minGainPercent", True, True, False),
    SpecField("health", True, True, False),
    SpecField("nprocPerNode", True, False, False),
    SpecField("successPolicy", True, False, False),
    SpecField("restartScope", True, False, False),
    SpecField("backoffLimit", True, True, False),
    SpecField("activeDeadlineSeconds", True, False, False),
    SpecField("ttlSecondsAfterFinished", True, True, True),
    SpecField("cleanPodPolicy", True, True, False),
    SpecField("evictions", True, False, False),
    SpecField("suspend", True, True, False),
    SpecField("cancel", True, True, False),
    SpecField("outputs", True, False, False),
    SpecField("modelOutput", True, False, False),
    SpecField("modelInputs", True, False, False),
)
"""Every field of the spec; of the elastic policy, also the fields for autoscaling."""
ELASTIC = "torchElasticPolicy"
"""The field of which a part may change while a job is admitted: the fields for autoscaling, which have rows."""
RESIZABLE = "torchTaskSpecs"
"""The field in which an admitted elastic job may change the Worker's `numTasks`."""
SUSPENSION = "suspend"
"""The field that may be set to false once a job has finished, which then has no effect: `torchq restore` creates
finished jobs suspended."""
DEADLINE = "activeDeadlineSeconds"
"""The field that may be set or lowered while a job is queued or admitted."""
CANCELLATION = "cancel"
"""The field that never changes from true to false."""
NOT_TAKEN_BACK = f"{CANCELLATION} may not change back to false, because the job ends: submit a new job"

_STATES: dict[_FieldState, tuple[str, str]] = {
    "finished": (
        f"has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in {list(FINISHED)}",
        "may not change after the job has finished: submit a new job",
    ),
    "admitted": (
        "has(oldSelf.status) && has(oldSelf.status.admission)",
        "may not change while the job is admitted: set spec.suspend to true and wait for phase Suspended "
        "(an elastic job may change Worker.numTasks within its torchElasticPolicy; "
        "activeDeadlineSeconds may be set or lowered)",
    ),
    "queued": (
        "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Queued'",
        "may not be raised or removed while the job is queued, because room that is kept for another job may be lent "
        "to it until then: set spec.suspend to true and wait for phase Suspended",
    ),
}
"""For each state, a CEL expression that detects it, and the message for a field that may not change in it.

The first state whose expression is true counts.
"""
CHANGE_REFUSED = "a field of the spec may not change any more"
"""The message of a server that does not evaluate messageExpression, which names the field."""


def transition() -> Rule:
    """Return the table as a transition rule for the root of a TorchJob.

    The table is one rule because the API server also runs it at every change of a status. With one rule per field,
    these rules were a third of the cost of such a change in kube-apiserver. The disadvantage is that the rule's field
    path is the spec; the message names the field.

    The cheapest and most frequent cases come first: a job without a status is waiting, and a change of the status
    leaves the spec as it is.
    """
    unchanged = {
        state: " && ".join(_change_allowed(path, state) for path in _immutable_paths(state)) for state in _STATES
    }
    allowed = _by_state(unchanged, "true")
    messages = _by_state({state: _message_expression(state) for state in _STATES}, repr(CHANGE_REFUSED))
    rule = cel_rules.rule(f"!has(oldSelf.status) || self.spec == oldSelf.spec || ({allowed})", CHANGE_REFUSED, ".spec")
    return rule | {"messageExpression": messages}


def one_way() -> Rule:
    """Return the transition rule for the root of a TorchJob that a cancellation stays. The table says the same of a
    finished job."""
    before, after = f"oldSelf.spec.{CANCELLATION}", f"self.spec.{CANCELLATION}"
    stays = f"!has({before}) || !{before} || (has({after}) && {after})"
    return cel_rules.rule(f"{stays} || {_STATES['finished'][0]}", NOT_TAKEN_BACK, ".spec")


def _immutable_paths(state: _FieldState) -> list[str]:
    if state == "queued":
        return [DEADLINE]
    paths = [field.path for field in TABLE if not field.may_change(state)]
    return [path for path in paths if path.rpartition(".")[0] not in paths]


def _by_state(expressions: dict[_FieldState, str], otherwise: str) -> str:
    """Return CEL that evaluates the expression of the first state that holds."""
    for state, (when, _) in reversed(_STATES.items()):
        otherwise = f"{when} ? {expressions[state]} : ({otherwise})"
    return otherwise


def _message_expression(state: _FieldState) -> str:
    """Return CEL for the message: the changed fields that may not change in the state, and the reason."""
    names = " + ".join(f"({_change_allowed(path, state)} ? '' : '{path} ')" for path in _immutable_paths(state))
    return f"{names} + '{_STATES[state][1]}'"


def _change_allowed(path: str, state: _FieldState) -> str:
    """Return CEL that is true if a field has not changed, or only in an allowed way."""
    if state == "admitted" and path == ELASTIC:
        return _same_bounds()
    same = cel_rules.absent_or_equal("self.spec", "oldSelf.spec", path)
    if state == "finished" and path == SUSPENSION:
        return f"({same} || {_ends_suspension()})"
    if state != "finished" and path in (RESIZABLE, DEADLINE):
        return f"({same} || {_resizes_workers() if path == RESIZABLE else _lowers_deadline()})"
    return same


def _same_bounds() -> str:
    """Return CEL that is true if the elastic policy has not changed, except in fields with rows of their own."""
    new, old, rows = f"self.spec.{ELASTIC}", f"oldSelf.spec.{ELASTIC}", {field.path for field in TABLE}
    names = (str(field.alias) for field in TorchElasticPolicy.model_fields.values())
    others = (cel_rules.absent_or_equal(new, old, name) for name in names if f"{ELASTIC}.{name}" not in rows)
    return f"(has({new}) ? has({old}) && {' && '.join(others)} : !has({old}))"


def _lowers_deadline() -> str:
    """Return CEL that is true if the deadline is set for the first time or becomes earlier."""
    new, old = f"self.spec.{DEADLINE}", f"oldSelf.spec.{DEADLINE}"
    return f"(has({new}) && (!has({old}) || {new} <= {old}))"


def _ends_suspension() -> str:
    """Return CEL that is true if the job is not suspended any more."""
    return f"(!has(self.spec.{SUSPENSION}) || !self.spec.{SUSPENSION})"


def _resizes_workers() -> str:
    """Return CEL that is true if only the number of workers of an elastic job changes.

    The bounds of the number are those of any spec (`cel_rules.worker_bounds`).
    """
    new, old, bounds = f"self.spec.{RESIZABLE}", f"oldSelf.spec.{RESIZABLE}", "self.spec.torchElasticPolicy"
    worker, before = f"{new}[{WORKER!r}]", f"{old}[{WORKER!r}]"
    others = (str(field.alias) for name, field in TaskSpec.model_fields.items() if name != "num_tasks")
    return "({})".format(
        " && ".join(
            (
                f"has({bounds}) && {new}.size() == {old}.size() && {WORKER!r} in {new} && {WORKER!r} in {old}",
                f"{new}.all(t, t == {WORKER!r} || (t in {old} && {new}[t] == {old}[t]))",
                *(cel_rules.absent_or_equal(worker, before, field) for field in others),
            )
        )
    )
