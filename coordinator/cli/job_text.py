"""What `torchq job show` prints: the document of `coordinator.cli.job_details`, and the job's own conditions and pods.

One rule: pure; nothing is shown here that the document or the objects do not say.
"""

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from coordinator.cli import output, text
from coordinator.query.documents import Document
from crds import excerpts
from crds.keys import JobKey
from kube.api import Manifest
from reconcilers.views import pod_problems

LABEL = 12
LONGEST = 2_000
"""Characters of a message in a column; the object has all of it (`-o yaml`)."""
TASKS = ("TASK", "WANTED", "MINIMUM", "RUNNING", "READY", "SUCCEEDED", "FAILED", "")
WORKLOADS = ("TASK", "IMAGE", "FOLDER", "COMMAND")
LONGEST_COMMAND = 80
"""Characters of a command that are shown to people."""


def show(item: Manifest, found: Document, pods: Iterable[Manifest]) -> str:
    """Everything, in paragraphs."""
    facts = "\n".join(f"{title + ':':<{LABEL}}{value}" for title, value in _facts(item, found))
    return "\n\n".join(filter(None, [facts, *_tables(item, found, pods), *found["notes"]]))


def _facts(item: Manifest, found: Document) -> Iterator[tuple[str, object]]:
    metadata, status, admission = item["metadata"], item.get("status") or {}, found["admission"]
    yield "Job", JobKey(metadata["namespace"], metadata["name"], metadata["uid"])
    yield "Queue", found["queue"]
    yield "Phase", found["phase"]
    if found["waits"]:
        yield "Waits", f"{found['waits']['code']}: {found['waits']['message']}"
    yield "Submitted", metadata["creationTimestamp"]
    yield "Started", status.get("startTime") or "-"
    yield "Completed", status.get("completionTime") or "-"
    yield "Restarts", _restarts(found["restarts"])
    if found["excludedNodes"]:
        yield "Avoids", f"{', '.join(found['excludedNodes'])} (its pods failed there repeatedly)"
    if admission:
        at = admission.get("admittedAt", "-")
        yield "Admission", f"attempt {admission['attempt']}, epoch {admission['epoch']}, at {at}"
        yield "Charge", ", ".join(f"{name}={amount}" for name, amount in admission.get("charge", {}).items())
    if found["gangScheduler"]:
        yield "Gang", ", ".join([found["gangScheduler"], *map(_group, found["groups"])])


def _restarts(restarts: Document) -> str:
    counted = f"{restarts['counted']} of {restarts['limit']}"
    more = [f"{restarts['disruptions']} not its fault"] if restarts["disruptions"] else []
    waits = [f"the next at {restarts['notBefore']} (back-off)"] if "notBefore" in restarts else []
    return ", ".join([counted, *more, *waits])


def _group(group: Document) -> str:
    return f"{group['name']} {group['phase']}" + (f" ({group['message']})" if group.get("message") else "")


def _tables(item: Manifest, found: Document, pods: Iterable[Manifest]) -> Iterator[str]:
    if found["tasks"]:
        yield output.columns(TASKS, [_task(each) for each in found["tasks"]])
        yield output.columns(WORKLOADS, [_workload(each) for each in found["tasks"]])
        yield "\n".join(text.short(task["task"], each) for task in found["tasks"] for each in task["why"])
    conditions = (item.get("status") or {}).get("conditions") or ()
    yield from _table(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), map(_condition, conditions))
    yield from _table(("POD", "PHASE", "NODE", "RESTARTS", "EXIT", "REASON"), map(_pod, pods))
    yield from _table(("EVENT", "REASON", "MESSAGE"), map(_event, found["events"]))


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Columns, if there is anything to show."""
    there = list(rows)
    if there:
        yield output.columns(header, there)


def _condition(found: Document) -> tuple[object, ...]:
    since = found["lastTransitionTime"]
    message = excerpts.excerpt(excerpts.one_line(found.get("message", "")), LONGEST)
    return found["type"], found["status"], found.get("reason", ""), since, message


def _event(found: Document) -> tuple[object, ...]:
    return found.get("at", "-"), found.get("reason", ""), found.get("message", "")


def _task(task: Document) -> tuple[object, ...]:
    names = ("task", "wanted", "minimum", "running", "ready", "succeeded", "failed")
    return (*(task[name] for name in names), "short" if task["short"] else "")


def _workload(task: Document) -> tuple[object, ...]:
    return task["task"], task["image"] or "-", task["folder"] or "-", _shortened(shlex.join(task["command"])) or "-"


def _shortened(text: str) -> str:
    """In one line; of a long one the first words, and an ellipsis."""
    words = text.split()
    fitting = textwrap.wrap(" ".join(words), LONGEST_COMMAND - 4, break_long_words=False, break_on_hyphens=False)
    return " ".join([*fitting[:1], *(["..."] if fitting[1:] else [])])


def _pod(pod: Manifest) -> tuple[object, ...]:
    status: dict[str, Any] = pod.get("status") or {}
    states = status.get("containerStatuses") or []
    ended = [each["state"]["terminated"] for each in states if "terminated" in (each.get("state") or {})]
    phase = "Terminating" if "deletionTimestamp" in pod["metadata"] else status.get("phase", "Pending")
    exits = ",".join(f"{each['exitCode']} ({each.get('reason', '')})" for each in ended) or "-"
    ailment = pod_problems.find_problem(pod)
    return (
        pod["metadata"]["name"],
        phase,
        pod["spec"].get("nodeName", "-"),
        sum(each.get("restartCount", 0) for each in states),
        exits,
        ailment.reason if ailment else "-",
    )
