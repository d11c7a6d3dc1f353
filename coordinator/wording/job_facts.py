"""What `torchq job show` says, as facts and tables: from the document of `job_details`, and from the job and its pods.

One rule: nothing is said beyond the facts of the document and the objects.
"""

import shlex
import textwrap
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from coordinator.query.questions import Document
from coordinator.wording import ages, explanations, job_growth
from coordinator.wording.columns import TextTable
from crds import excerpts, holds, labels
from crds.keys import JobKey
from crds.resources import quantities
from kube.api import Manifest
from reconcilers.views import containers, pod_problems, pod_view

LONGEST = 2_000
"""The most characters of a message in a column; `-o yaml` prints all of it."""
TASKS = ("TASK", "WANTED", "MINIMUM", "RUNNING", "READY", "SUCCEEDED", "FAILED", "")
WORKLOADS = ("TASK", "IMAGE", "FOLDER", "COMMAND")
MOST_DEPARTED = 5
DRIVERS = {
    "kubernetes": "restarts by Kubernetes",
    "kruise": "restarts by OpenKruise",
    "local": "restarts by the node",
    "recreate": "new pods instead",
}
"""What restarts containers, as a person reads it."""
LONGEST_COMMAND = 80
"""The most characters of a command in a column."""
_LEAST_HOURS = 0.01


def facts(item: Manifest, document: Document) -> Iterator[tuple[str, object]]:
    """Yield everything about a job that is not in a table, each with its title."""
    metadata, status, admission = item["metadata"], item.get("status") or {}, document["admission"]
    yield "Job", JobKey(metadata["namespace"], metadata["name"], metadata["uid"])
    yield "Queue", document["queue"]
    yield from _state(document)
    if document.get("size"):
        yield "Workers", job_growth.format_size(document["size"])
    if document.get("workers"):
        yield "More" if document.get("size") else "Workers", job_growth.format_rest(document["workers"])
    if training := _training(document.get("training") or {}):
        yield "Training", "; ".join(filter(None, (training, document.get("silence"))))
    yield from _models(item["spec"])
    user = excerpts.excerpt((metadata.get("annotations") or {}).get(labels.SUBMITTED_BY) or "", LONGEST)
    yield "Submitted", f"{metadata['creationTimestamp']} by {user}" if user else metadata["creationTimestamp"]
    yield "Started", status.get("startTime") or "-"
    yield "Completed", status.get("completionTime") or "-"
    yield from _restarts(document["restarts"])
    if document["excludedNodes"]:
        yield "Avoids", f"{', '.join(document['excludedNodes'])} (pods of this job failed there repeatedly)"
    if departed := status.get("departed") or {}:
        names = pod_view.list_names(sorted(departed), MOST_DEPARTED)
        yield "Moves", f"{names} left their nodes or were preempted, not running elsewhere yet"
    if admission:
        at = admission.get("admittedAt", "-")
        yield "Admission", f"attempt {admission['attempt']}, epoch {admission['epoch']}, at {at}"
        yield "Charge", _charge(admission.get("charge") or {})
        if domain := admission.get("domain"):
            yield "Domain", f"{domain} (all pods run on nodes with this label)"
    if document["held"]:
        yield "Held", _hours(document["held"])
    if document["gangScheduler"]:
        yield "Gang", ", ".join([document["gangScheduler"], *map(_group, document["groups"])])


def _models(spec: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the model that a job trains and those that it reads, as one fact."""
    trained, read = spec.get("modelOutput"), spec.get("modelInputs") or ()
    parts = [f"trains {trained['modelName']}"] if trained else []
    labelled = ", ".join(f"{each['modelName']}@{each['version']}" for each in read)
    if found := "; ".join([*parts, *([f"reads {labelled}"] if labelled else [])]):
        yield "Models", found


def _state(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the phase of a job, and the facts about the phase that its owner should know."""
    yield "Phase", document["phase"]
    if document["deletion"]:
        yield "Deletion", document["deletion"]
    if document["hang"]:
        yield "Hangs", explanations.describe_hang(document["hang"])
    if document["waits"]:
        yield "Waits", f"{document['waits']['code']}: {document['waits']['message']}"


def _hours(held: Document) -> str:
    """Format for how long a job has held its GPUs, else its CPUs, else its pods. Less than 0.01 hours are seconds."""
    seconds, attempts = held["seconds"], held["attempts"]
    gpus = sum(amount for name, amount in seconds.items() if name.endswith(holds.GPU))
    amounts = (gpus, "GPU"), (seconds.get("cpu", 0) / 1000, "CPU"), (seconds.get("pods", 0), "pod")
    amount, unit = next(filter(itemgetter(0), amounts), amounts[-1])
    shown = f"{amount:.3g} {unit}-seconds" if amount < _LEAST_HOURS * 3600 else f"{amount / 3600:.2f} {unit}-hours"
    return f"{shown} in {attempts} attempt{'' if attempts == 1 else 's'}"


def _charge(charge: Document) -> str:
    """Format a charge in the units of quotas, except values that are not amounts."""
    return ", ".join(
        f"{name}={quantities.format_amount(name, amount) if isinstance(amount, int) else amount}"
        for name, amount in charge.items()
    )


def _training(reports: Document) -> str:
    """Format the progress of a job; empty if it has reported nothing."""
    if "unknown" in reports:
        return f"unknown: {reports['unknown']}"
    if "step" not in reports:
        return ""
    speeds = (("stepsPerSecond", "steps/s"), ("samplesPerSecond", "samples/s"))
    parts = [*_estimate(reports), *(f"{reports[name]:.4g} {unit}" for name, unit in speeds if name in reports)]
    pods = len(reports["pods"])
    last = f"last report at {reports['reportedAt']} ({pods} pod{'s' if pods != 1 else ''})"
    of_all = f" of {reports['totalSteps']}" if "totalSteps" in reports else ""
    return ", ".join([f"step {reports['step']}{of_all} since {reports['since']}", *parts, last])


def progress(reports: Document) -> str:
    """Return in a few words how far the training is: its own estimate, else its step; empty if it has not reported."""
    return ", ".join(_estimate(reports)) or (f"step {reports['step']}" if "step" in reports else "")


def _estimate(reports: Document) -> Iterator[str]:
    """Yield how far the training is by its own estimate."""
    if "progressPercentage" in reports:
        yield f"{reports['progressPercentage']} %"
    if reports.get("estimatedRemainingSeconds"):
        yield f"{ages.duration(reports['estimatedRemainingSeconds'])} to go"


def _restarts(restarts: Document) -> Iterator[tuple[str, str]]:
    """Yield the counts of restarts, and the driver that restarts containers in place, or why no driver does."""
    counted = f"{restarts['counted']} of {restarts['limit']}"
    more = [f"{restarts['disruptions']} not its fault"] if restarts["disruptions"] else []
    waits = [f"the next at {restarts['notBefore']} (back-off)"] if "notBefore" in restarts else []
    yield "Restarts", ", ".join([counted, *more, *waits])
    if "driver" in restarts:
        who = str(DRIVERS.get(restarts["driver"], restarts["driver"]))
        yield "In place", who + (f" ({restarts['why']})" if "why" in restarts else "")


def _group(group: Document) -> str:
    return f"{group['name']} {group['phase']}" + (f" ({group['message']})" if group.get("message") else "")


def tasks(document: Document) -> TextTable:
    """Return how many pods each task wants, needs and has."""
    names = [title.lower() for title in TASKS[:-1]]
    return TextTable(TASKS, [(*map(task.get, names), "short" * task["short"]) for task in document["tasks"]])


def workloads(document: Document) -> TextTable:
    """Return what the pods of each task run."""
    return TextTable(WORKLOADS, [_workload(task) for task in document["tasks"]])


def blockers(document: Document) -> list[str]:
    """Return why pods of tasks do not run, a line for each reason."""
    return [explanations.format_blocker(task["task"], blocker) for task in document["tasks"] for blocker in task["why"]]


def conditions(item: Manifest) -> TextTable:
    """Return the conditions of a job."""
    found = (item.get("status") or {}).get("conditions") or ()
    return TextTable(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), [*map(_condition, found)])


def pods(items: Iterable[Manifest], *, wide: bool = False) -> TextTable:
    """Return the pods of a job; with `wide`, their ranks and labels of their nodes, too."""
    more = ("RANK", "LABELS") if wide else ()
    rows = [(*_pod(pod), *(_place(pod) if wide else ())) for pod in items]
    return TextTable(("POD", "PHASE", "NODE", "RESTARTS", "EXIT", "REASON", *more), rows)


def events(document: Document) -> TextTable:
    """Return the last events of a job."""
    return TextTable(("EVENT", "FROM", "REASON", "MESSAGE"), [*map(_event, document["events"])])


def _condition(condition: Document) -> tuple[object, ...]:
    since = condition["lastTransitionTime"]
    message = excerpts.excerpt(excerpts.one_line(condition.get("message", "")), LONGEST)
    return condition["type"], condition["status"], condition.get("reason", ""), since, message


def _event(event: Document) -> tuple[object, ...]:
    return event.get("at", "-"), event["from"], event.get("reason", ""), event.get("message", "")


def _workload(task: Document) -> tuple[object, ...]:
    """Return a row. A long command ends in an ellipsis after its first words."""
    command = " ".join(shlex.join(task["command"]).split())
    fitting = textwrap.wrap(command, LONGEST_COMMAND - 4, break_long_words=False, break_on_hyphens=False)
    shown = " ".join([*fitting[:1], *(["..."] if fitting[1:] else [])])
    return task["task"], task["image"] or "-", task["folder"] or "-", shown or "-"


def _place(pod: Manifest) -> tuple[object, ...]:
    """Return the rank of a pod and the labels of its node that gave it; a dash where torchrun chooses the rank."""
    notes = pod["metadata"].get("annotations") or {}
    env = {entry["name"]: entry.get("value") for entry in containers.main(pod["spec"]).get("env") or ()}
    return notes.get(labels.RANK) or env.get("RANK") or "-", notes.get(labels.TOPOLOGY) or "-"


def _pod(pod: Manifest) -> tuple[object, ...]:
    status: dict[str, Any] = pod.get("status") or {}
    states = status.get("containerStatuses") or []
    ended = [state["state"]["terminated"] for state in states if "terminated" in (state.get("state") or {})]
    phase = "Terminating" if "deletionTimestamp" in pod["metadata"] else status.get("phase", "Pending")
    exits = ",".join(f"{state['exitCode']} ({state.get('reason', '')})" for state in ended) or "-"
    problem = pod_problems.find_problem(pod)
    return (
        pod["metadata"]["name"],
        phase,
        pod["spec"].get("nodeName", "-"),
        sum(state.get("restartCount", 0) for state in states),
        exits,
        problem.reason if problem else "-",
    )
