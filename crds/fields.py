"""Which fields of a TorchJob's spec may change, and when.

One rule: this table alone says so; the CEL rules at the root, where the status is readable, are made from it.

A job waits until it is admitted (and again after it was suspended or sent back), is admitted while `status.admission`
is there, and is finished in phase Succeeded or Failed. The state before the change counts.
"""

from dataclasses import dataclass
from typing import Literal

from crds import rules
from crds.conditions import FINISHED
from crds.rules import Rule

State = Literal["waiting", "admitted", "finished"]


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
    Field("restartScope", True, False, False),
    Field("backoffLimit", True, True, False),
    Field("activeDeadlineSeconds", True, True, False),
    Field("ttlSecondsAfterFinished", True, True, True),
    Field("cleanPodPolicy", True, True, False),
    Field("suspend", True, True, False),
)
"""Every field of the spec. Resizing an admitted job is refused until its replicas can follow."""

_PHASE = "has(oldSelf.status) && has(oldSelf.status.phase)"
_FINISHED = f"({_PHASE} && oldSelf.status.phase in {list(FINISHED)})"
_ADMITTED = f"(has(oldSelf.status) && has(oldSelf.status.admission) && !{_FINISHED})"
_STATES: dict[State, tuple[str, str]] = {
    "admitted": (
        _ADMITTED,
        "while the job is admitted (set spec.suspend to true and wait for phase Suspended)",
    ),
    "finished": (_FINISHED, "after the job has finished (submit a new job)"),
}


def transitions() -> list[Rule]:
    """The table as transition rules for the root of a TorchJob: one for each field that some state settles.

    The API server runs all of them at every change of a status, too, where they were half of its work. So each field
    has one, and it asks first what is true nearly always: that nothing has changed.
    """
    return [_transition(field, states) for field in TABLE if (states := _settled(field))]


def _settled(field: Field) -> list[State]:
    return [state for state in _STATES if not field.may_change(state)]


def _transition(field: Field, states: list[State]) -> Rule:
    when = " || ".join(_STATES[state][0] for state in states)
    words = " or ".join(_STATES[state][1] for state in states)
    message = f"{field.path} may not change {words}"
    return rules.rule(f"{unchanged(field.path)} || !({when})", message, f".spec.{field.path}")


def unchanged(path: str) -> str:
    """CEL for: an optional field of the spec is absent before and after, or equal."""
    new, old = _has("self.spec", path), _has("oldSelf.spec", path)
    return f"({new} ? {old} && self.spec.{path} == oldSelf.spec.{path} : !({old}))"


def _has(root: str, path: str) -> str:
    """CEL for: every step of the path is there."""
    steps = path.split(".")
    return " && ".join(f"has({root}.{'.'.join(steps[:depth])})" for depth in range(1, len(steps) + 1))
