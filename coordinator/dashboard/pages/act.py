"""The question before a change, as a page that works without the script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.dashboard.acts import acting
from coordinator.dashboard.acts.acting import AskedChange
from coordinator.dashboard.acts.verbs import JOB
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Page
from coordinator.dashboard.pages import job, queue
from coordinator.dashboard.visitors import Visitor
from crds.keys import JobKey


@dataclass(frozen=True, slots=True)
class ChangeQuestion:
    """A change that a visitor has to confirm."""

    target: AskedChange
    weight: str
    """The present weight of a queue whose weight is asked for; else empty."""


def load(visitor: Visitor, parameters: Mapping[str, str]) -> ChangeQuestion:
    """Read the object. Raises CoordinatorError and ClusterError."""
    asked = acting.target(parameters)
    item = acting.read(visitor, asked)
    weight = str((item.get("spec") or {}).get("weight", 1)) if asked.verb.name == "weight" else ""
    # The question is about the object that is read now, also where its address has no uid.
    return ChangeQuestion(replace(asked, uid=item["metadata"]["uid"]), weight)


def page(asked: Asked) -> Page:
    """Return the page."""
    question: ChangeQuestion = asked.loaded
    target = question.target
    fields = {"verb": target.verb.name, "kind": target.kind, "namespace": target.namespace, "name": target.name,
              "uid": target.uid}  # fmt: skip
    fixed = {
        "question": f"{target.verb.label}: {target.subject}?",
        "means": target.verb.means,
        "is_grave": target.verb.is_grave,
        "label": f"{target.verb.label} the {target.kind}" if target.verb.name != "weight" else target.verb.label,
        "fields": tuple(fields.items()),
        "weight": question.weight,
        "back": target.path,
    }
    return Page("act", target.verb.label, {"problems": ()}, fixed)


def acted(said: Sequence[str], target: AskedChange | None, *, is_done: bool) -> Page:
    """Return the page that says what was done, or why it was not."""
    fixed = {
        "said": tuple(said),
        "back": target.path if target else "",
        "subject": target.subject if target else "",
        "is_done": is_done,
    }
    return Page("acted", "Done" if is_done else "Not done", {"problems": ()}, fixed)


def expire(visitor: Visitor, target: AskedChange) -> None:
    """Let the page of an object that a visitor has changed show the change at once."""
    if target.kind == JOB:
        job.READS.expire(visitor, JobKey(target.namespace, target.name, target.uid))
    else:
        queue.expire(visitor, target.name)
