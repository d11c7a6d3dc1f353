"""Conditions and phase of a TorchJob: one table.

One rule: a job is in one phase, and the phase decides which conditions are True; all others are False or unset. So no
two conditions can contradict each other. A condition's time moves only when its status changes.

    phase      True               entered when                               next
    (none)     -                  the object is new                          Queued Admitted Suspended Failed
    Queued     Queued             it waits in a tenant queue                 Admitted Suspended Failed
    Admitted   Admitted           it holds its room, not all pods run        Running Queued Suspended Succeeded Failed
    Running    Admitted, Running  every task has its least number of pods    Admitted Queued Suspended Succeeded Failed
    Suspended  Suspended          its owner paused it and its pods are gone  Queued Admitted Failed
    Succeeded  Succeeded          it is done                                 -
    Failed     Failed             it failed, was cancelled, or cannot run  -
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from crds import excerpts
from crds.model import LONGEST_CONDITION, LenientModel, Time

ConditionType = Literal["Queued", "Admitted", "Running", "Succeeded", "Failed", "Suspended"]
Phase = Literal["", "Queued", "Admitted", "Running", "Suspended", "Succeeded", "Failed"]

TRUE_IN: Mapping[Phase, tuple[ConditionType, ...]] = {
    "": (),
    "Queued": ("Queued",),
    "Admitted": ("Admitted",),
    "Running": ("Admitted", "Running"),
    "Suspended": ("Suspended",),
    "Succeeded": ("Succeeded",),
    "Failed": ("Failed",),
}
"""The conditions that are True in each phase."""

NEXT: Mapping[Phase, tuple[Phase, ...]] = {
    "": ("Queued", "Admitted", "Suspended", "Failed"),
    "Queued": ("Admitted", "Suspended", "Failed"),
    "Admitted": ("Running", "Queued", "Suspended", "Succeeded", "Failed"),
    "Running": ("Admitted", "Queued", "Suspended", "Succeeded", "Failed"),
    "Suspended": ("Queued", "Admitted", "Failed"),
    "Succeeded": (),
    "Failed": (),
}
"""The phases that may follow each phase."""

FINISHED: tuple[Phase, ...] = ("Succeeded", "Failed")
CANCELLED = "Cancelled"
"""The reason of the condition Failed of a job that its owner has cancelled."""
WAITS_FOR_RANKS = "WaitsForRanks"
"""Reason of the condition Running: some ranks have ended with 0, and others still run."""
RANKS_REMEDY = (
    "these pods keep the room of the job: activeDeadlineSeconds limits its time, and under successPolicy Master a job "
    "ends with its Master"
)
"""What the message of that condition says once they have waited for long."""
GROUP_PENDING, UNSCHEDULABLE, NOT_STARTING, NOT_WHOLE = (
    "PodGroupPending",
    "PodsUnschedulable",
    "PodsNotStarting",
    "GangNotWhole",
)
WAITS_FOR_SCHEDULER = "WaitingForScheduler"
"""Reason: the scheduler of a gang did not bind it while others waited for its room, so the room is given back."""
DOMAIN_CLOSED = "DomainClosed"
"""Reason: no node of the job's domain takes new pods, and the job lacks some, so its room is given back."""
LACKS_PODS = (GROUP_PENDING, UNSCHEDULABLE, NOT_STARTING, NOT_WHOLE)
"""Reasons of the conditions Admitted and Running of a job of which pods do not run: a gang scheduler has not let its
group in; pods have no node; pods do not start on theirs; the scheduler does not bind the gang as a whole."""
USUAL = ("Admitted", "Running", "Restarting", "Hanging", "Suspending", "Draining", "Resizing")
"""Reasons of the conditions Admitted and Running of a job that can have its pods, or is about to lose them."""


class Condition(LenientModel):
    """A condition of the job, as in metav1.Condition."""

    type: Annotated[str, Field(max_length=64)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=128)] = ""
    message: Annotated[str, Field(max_length=LONGEST_CONDITION)] = ""
    last_transition_time: Time
    observed_generation: int = 0


Conditions = tuple[Condition, ...]


def set_condition(
    conditions: Iterable[Condition], type: str, status: bool, reason: str, message: str, now: datetime, generation: int
) -> Conditions:
    """Return the conditions with one condition set, at its place or at the end.

    The transition time of the condition changes only if its status changes.
    """
    before = tuple(conditions)
    text: Literal["True", "False"] = "True" if status else "False"
    old = find(before, type)
    since = old.last_transition_time if old is not None and old.status == text else now
    new = Condition(
        type=type,
        status=text,
        reason=reason,
        message=excerpts.excerpt(message, LONGEST_CONDITION),
        last_transition_time=since,
        observed_generation=generation,
    )
    return (
        tuple(new if condition.type == type else condition for condition in before)
        if old is not None
        else (*before, new)
    )


def enter(
    conditions: Iterable[Condition], phase: Phase, reason: str, message: str, now: datetime, generation: int
) -> Conditions:
    """Return the conditions of a job that enters a phase.

    The conditions of the phase become True with this reason; any other True condition becomes False. Raise ValueError
    for a job that leaves Succeeded or Failed: no phase follows them.
    """
    after = tuple(conditions)
    old = phase_of(after)
    if old in FINISHED and old != phase:
        raise ValueError(f"a job that {old.lower()} cannot become {phase}")
    for condition in after:
        if condition.status != "False" and condition.type not in TRUE_IN[phase]:
            after = set_condition(after, condition.type, False, phase or "New", message, now, generation)
    for kind in TRUE_IN[phase]:
        after = set_condition(after, kind, True, reason, message, now, generation)
    return after


def confirm(conditions: Iterable[Condition], generation: int) -> Conditions:
    """Return the conditions with a newer generation, because they still hold for the newer spec.

    `kubectl wait` ignores a condition with an older generation.
    """
    return tuple(condition.model_copy(update={"observed_generation": generation}) for condition in conditions)


def phase_of(conditions: Iterable[Condition]) -> Phase:
    """Return the phase that the True conditions stand for; of contradictory conditions, the most final phase is
    taken."""
    true = {condition.type for condition in conditions if condition.status == "True"}
    order: tuple[Phase, ...] = ("Failed", "Succeeded", "Suspended", "Running", "Admitted", "Queued")
    return next((phase for phase in order if phase in true), "")


def find(conditions: Iterable[Condition], type: str) -> Condition | None:
    """Return the condition of a type, or None if it was never set."""
    return next((condition for condition in conditions if condition.type == type), None)
