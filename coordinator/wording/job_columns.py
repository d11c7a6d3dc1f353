"""The columns of a list of jobs.

One rule: a column shows one value and never changes its place. A new column comes last, or only with `-o wide`.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from coordinator.follow import deletion, endings, wait_reasons
from coordinator.query.questions import Document
from coordinator.wording import ages, columns, job_state
from coordinator.wording.columns import TableColumn
from crds import excerpts, labels, timestamps
from crds.torchjob.conditions import FINISHED, RANKS_REMEDY, WAITS_FOR_RANKS
from crds.torchjob.tasks import AI_MASTER, RENDEZVOUS, WORKER

LONGEST_CAUSE = 100
"""The most characters of the cause of a failure."""


def job_columns(now: datetime, places: Mapping[str, tuple[int, int]]) -> tuple[TableColumn, ...]:
    """Return the columns of TorchJobs. `places` has the place of waiting jobs, and the number that wait, by uid."""
    return (
        TableColumn("NAMESPACE", lambda job: job["metadata"]["namespace"]),
        TableColumn("NAME", lambda job: job["metadata"]["name"]),
        TableColumn("QUEUE", job_state.queue_of),
        TableColumn("PHASE", phase),
        TableColumn("PODS", _pods, lambda job: _active(job, _ranked(job))),
        TableColumn("AGE", lambda job: ages.age_of(job, now), ages.creation_order),
        TableColumn("RUNTIME", lambda job: ages.duration(_runtime(job, now)), lambda job: _runtime(job, now)),
        TableColumn("PRIORITY", lambda job: (job["spec"].get("schedulingPolicy") or {}).get("priority", 0), wide=True),
        TableColumn("ATTEMPT", lambda job: columns.status_of(job).get("attempt", 0), wide=True),
        TableColumn("RESTARTS", lambda job: columns.status_of(job).get("restartCount", 0), wide=True),
        TableColumn("USER", _user, wide=True),
        TableColumn("REASON", lambda job: reason(job, places)),
    )


def places_by_uid(places: Iterable[Document]) -> dict[str, tuple[int, int]]:
    """Return the place of each waiting job, and the number of jobs in its queue, from what `Queries.places` answers."""
    return {str(each["uid"]): (int(each["position"]), int(each["of"])) for each in places}


def _user(job: Document) -> str:
    name = str((job["metadata"].get("annotations") or {}).get(labels.SUBMITTED_BY) or "-")
    return excerpts.excerpt(name, LONGEST_CAUSE)


def phase(job: Document) -> str:
    """Return the phase of a job for people. A job that was cancelled is not shown as failed; a job that is being
    deleted is shown as ending.
    """
    if deletion.is_deleting(job):
        return deletion.DELETING
    name = str(columns.status_of(job).get("phase") or "Pending")
    return endings.CANCELLED if name == "Failed" and endings.is_cancelled(job) else name


def is_in_order(job: Document) -> bool:
    """Return whether a job may have a place in its queue."""
    spec, status = job["spec"], columns.status_of(job)
    held = (spec.get("schedulingPolicy") or {}).get("hold")
    return not (status.get("phase") in FINISHED or status.get("admission") or spec.get("suspend") or held)


def _ranked(job: Document) -> dict[str, int]:
    """Return the tasks whose pods have ranks, each with its present or future number of pods; all tasks if none
    has ranks."""
    tasks = {name: task or {} for name, task in job["spec"]["torchTaskSpecs"].items()}
    granted = (columns.status_of(job).get("admission") or {}).get("workers") or 0
    counts = {name: max(task.get("numTasks", 1), granted * (name == WORKER)) for name, task in tasks.items()}
    helpers = [name for name, task in tasks.items() if task.get("auxiliary", name in (AI_MASTER, RENDEZVOUS))]
    return {name: count for name, count in counts.items() if name not in helpers} or counts


def _active(job: Document, ranked: Collection[str]) -> int:
    statuses = (columns.status_of(job).get("taskStatuses") or {}).items()
    return sum((task or {}).get("active", 0) for name, task in statuses if name in ranked)


def _pods(job: Document) -> str:
    ranked = _ranked(job)
    return f"{_active(job, ranked)}/{sum(ranked.values())}"


def _runtime(job: Document, now: datetime) -> float | None:
    """Return the seconds since the admission, with all restarts. The status no longer has the values of earlier
    admissions.
    """
    status = columns.status_of(job)
    began, ended = status.get("startTime"), status.get("completionTime")
    began = began or (status.get("admission") or {}).get("admittedAt")
    if not began:
        return None
    return ((timestamps.parse(ended) if ended else now) - timestamps.parse(began)).total_seconds()


def reason(job: Document, places: Mapping[str, tuple[int, int]]) -> str:
    """Return why a job waits and its place, the problem of a running job, or why it failed."""
    status = columns.status_of(job)
    if deletion.is_deleting(job):
        return f"held by {deletion.held_by(job)}" if deletion.held_by(job) else "-"
    name, queue = phase(job), columns.status_of(job_state.without_hold(job)).get("queue") or {}
    if name == "Failed":
        conditions: list[Document] = status.get("conditions") or []
        condition = next((each for each in conditions if each["type"] == "Failed"), {})
        return ": ".join(filter(None, map(_short, (condition.get("reason"), condition.get("message"))))) or "-"
    if status.get("hang"):
        return "Hanging"
    if ranks := wait_reasons.for_ranks(job):
        limits = "; activeDeadlineSeconds and successPolicy limit that" if ranks.endswith(RANKS_REMEDY) else ""
        return f"{WAITS_FOR_RANKS}: {excerpts.excerpt(ranks, LONGEST_CAUSE)}{limits}"
    if status.get("phase") in FINISHED or status.get("admission"):
        lacking, message = wait_reasons.of_pods(job)
        return ": ".join(filter(None, (lacking, _short(message)))) or "-"
    place = places.get(job["metadata"]["uid"]) if is_in_order(job) else None
    code = str(queue.get("reason") or "")
    if (job["spec"].get("schedulingPolicy") or {}).get("hold"):
        code = code or "Held"
    if place is None:
        return code or "-"
    return f"{place[0]} of {place[1]}" + (f" ({code})" if code else "")


def _short(text: object) -> str:
    return excerpts.excerpt(excerpts.one_line(str(text or "")), LONGEST_CAUSE)
