"""What the page of one job reads: the job, the objects around it, why it waits, its reports and its log.

One rule: everything is read with the rights of the visitor, once in some seconds for each visitor and job. A part that
the visitor may not read, or that nobody answers, is named, and the rest is shown. A page is of one uid: a job that is
deleted meanwhile stays as it was last.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

from coordinator.dashboard.jobs import history
from coordinator.dashboard.jobs.index import UNREADABLE
from coordinator.dashboard.jobs.log_tail import LogReaders, Tail
from coordinator.dashboard.loads import Loads
from coordinator.dashboard.readings import FAILURES
from coordinator.dashboard.visitors import Visitor
from coordinator.follow import deletion, job_objects
from coordinator.follow.log_lines import LogSelection
from coordinator.query.questions import Document, Queries, UnknownObject
from coordinator.routing.feasibility import Obstacle
from coordinator.runs.submission_findings import CheckUnavailable
from coordinator.wording import explanations, job_answers, job_context, job_state
from coordinator.wording.explanations import KnownFacts
from coordinator.wording.job_details import JobContext
from crds.keys import JobKey
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster

T = TypeVar("T")
EVERY_SECONDS = 2.0
MOST_PAGES = 128
"""The most pages of single jobs, each of one visitor and job, for which what was read is kept."""
POINTS = 300
"""The most reports that a line on the page shows."""
ABSENT = MappingProxyType({"state": "absent"})
DELETED, REPLACED = "deleted", "replaced"


@dataclass(frozen=True, slots=True)
class Point:
    """A report, as lines show it."""

    at: str
    step: int
    speed: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class JobLoaded:
    """What was read about a job."""

    uid: str
    item: Manifest | None
    """The job; None: only the history knows it, or nobody tells."""
    known: KnownFacts = field(default_factory=KnownFacts)
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What was not read, by its name, and why."""
    points: tuple[Point, ...] = ()
    """The reports that came since the page was opened, oldest first."""
    gone: str = ""
    """Whether the job was deleted, or replaced by one of the same name, since it was read."""
    tail: Tail = field(default_factory=Tail)
    past: Document | None = None
    """The job in the history, if the API server does not have it."""
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return a value that is made once from what was read, however often the page is made from it. Only the value
        of the newest name is kept."""
        if name not in self._made:
            self._made.clear()
            self._made[name] = make()
        found: T = self._made[name]
        return found


class JobReads:
    """Reads for the pages of single jobs."""

    def __init__(self, clock: Callable[[], float] = time.time, logs: LogReaders | None = None) -> None:
        self._clock, self._logs = clock, logs or LogReaders()
        self._jobs: Loads[JobLoaded] = Loads(EVERY_SECONDS, MOST_PAGES)
        self._uids: Loads[str] = Loads(EVERY_SECONDS)

    def load(self, visitor: Visitor, parameters: Mapping[str, str]) -> JobLoaded:
        """Read about the job of an address: the present one of that name, or the one of `uid`.

        Raises UnknownObject if there is no such job, or the visitor may not list the jobs of its namespace.
        """
        namespace, name = parameters["namespace"], parameters["name"]
        if not visitor.bounds((namespace,)).reader.may_read(namespace):
            raise UnknownObject(f"there is no job {namespace}/{name}")
        uid = parameters.get("uid", "")
        if not uid:
            present = JobKey(namespace, name, "")
            try:
                uid = self._uids.get((visitor.secret, present), lambda _: _uid(visitor, present))
            except errors.NotFound:
                # The address of a job is sent around, and leads to the newest job of its name when that is gone.
                uid = _past_uid(visitor, present)
                if not uid:
                    raise
            except FAILURES as error:
                return _unread(error)
        key = JobKey(namespace, name, uid)
        loaded = self._jobs.get((visitor.secret, key), lambda before: self._read(visitor, key, before))
        if loaded.item is None:
            return loaded
        selection = member(parameters)
        item = None if loaded.gone else loaded.item
        return replace(loaded, tail=self._logs.look(visitor.secret, visitor.cluster, key, selection, item))

    def expire(self, visitor: Visitor, key: JobKey) -> None:
        """Let a job be read again, as the visitor has just changed it."""
        self._jobs.expire((visitor.secret, key))

    def _read(self, visitor: Visitor, key: JobKey, before: JobLoaded | None) -> JobLoaded:
        problems = dict[str, str]()
        try:
            item = job_objects.read(visitor.cluster, key)
        except errors.NotFound as error:
            return _without(visitor, key, before, error)
        except FAILURES as error:
            return replace(before, problems=_unread(error).problems) if before else _unread(error, key.uid)
        reader = VisitorReader(visitor, problems)
        known = _known(reader, item, datetime.fromtimestamp(self._clock(), UTC))
        points = before.points if before else ()
        return JobLoaded(key.uid, item, known, MappingProxyType(problems), with_report(points, known.training), gone="")


def member(parameters: Mapping[str, str]) -> LogSelection:
    """Return whose log an address asks for: `pod` is a task and an index, as in worker-3; else the pod of rank 0."""
    task, _, index = parameters.get("pod", "").rpartition("-")
    number = int(index) if index.isascii() and index.isdigit() and len(index) < 7 else 0
    return LogSelection(task=task, index=number, tail=500, follow=True)


def _unread(error: Exception, uid: str = "") -> JobLoaded:
    """Return what is known of a job that the API server does not show now."""
    return JobLoaded(uid, None, problems=MappingProxyType({"job": str(error)}))


def _uid(visitor: Visitor, key: JobKey) -> str:
    return str(job_objects.read(visitor.cluster, key)["metadata"]["uid"])


def _past_uid(visitor: Visitor, key: JobKey) -> str:
    """Return the uid of the newest job of a name in the history; empty if there is none, or no recorder answers."""
    past = history.job(visitor, key.namespace, key.name, "")
    return str((past or {}).get("uid") or "")


def _without(visitor: Visitor, key: JobKey, before: JobLoaded | None, error: errors.NotFound) -> JobLoaded:
    """Return what is known of a job that is gone: what the page showed last, else what the history has. Raises the
    error if nothing is known."""
    if before is not None:
        return replace(before, gone=_successor(visitor, key), problems=MappingProxyType({}))
    past = history.job(visitor, key.namespace, key.name, key.uid)
    if past is None:
        raise error
    return JobLoaded(key.uid, None, gone=_successor(visitor, key), past=past)


def _successor(visitor: Visitor, key: JobKey) -> str:
    try:
        job_objects.read(visitor.cluster, JobKey(key.namespace, key.name, ""))
    except FAILURES:
        return DELETED
    return REPLACED


def _known(reader: "VisitorReader", item: Manifest, now: datetime) -> KnownFacts:
    """Return what is known around a job: what `job why` and `job show` ask."""

    def attempt(part: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (*FAILURES, *UNREADABLE) as error:
            reader.problems[part] = str(error)
            return otherwise

    objects = attempt("pods and events", lambda: _objects(reader, item, now), JobContext(now=now))
    known = KnownFacts(objects=objects)
    if deletion.is_deleting(item):
        return known
    nothing: Document = {}
    training = attempt("reports", lambda: job_answers.read_reports(reader, item, objects.pods), nothing)
    if job_state.is_admitted(item):
        rest = attempt("growth", lambda: job_answers.read_growth(reader, item), nothing)
        return replace(known, training=training, rest=rest)
    if explanations.is_waiting(item) or not job_state.is_finished(item):
        known = attempt("coordinator", lambda: job_answers.read_known(reader, item, now), known)
    return replace(known, objects=objects, training=training)


def _objects(reader: "VisitorReader", item: Manifest, now: datetime) -> JobContext:
    found = job_context.read(reader.cluster, item, now)
    return replace(found, pods=tuple(map(_trimmed, found.pods)))


def _trimmed(pod: Manifest) -> Manifest:
    """Return a pod without what no page shows: the pods of a job may be thousands."""
    metadata = {name: value for name, value in pod["metadata"].items() if name != "managedFields"}
    spec = {name: value for name, value in pod["spec"].items() if name not in ("volumes", "tolerations", "affinity")}
    return {**pod, "metadata": metadata, "spec": spec}


def with_report(points: tuple[Point, ...], training: Document) -> tuple[Point, ...]:
    """Return the points with the newest report, if it is a new one."""
    at, step = training.get("reportedAt"), training.get("step")
    if not isinstance(at, str) or not isinstance(step, int) or (points and points[-1].at == at):
        return points
    losses = (each.get("loss") for each in training.get("pods") or ())
    loss = next((each for each in losses if isinstance(each, int | float)), None)
    return (*points, Point(at, step, training.get("stepsPerSecond"), loss))[-POINTS:]


@dataclass(frozen=True, slots=True)
class VisitorReader:
    """The access of a visitor to what pages ask about jobs (`coordinator.wording.job_answers.JobReader`)."""

    visitor: Visitor
    problems: dict[str, str]

    @property
    def cluster(self) -> KubernetesCluster:
        """See JobReader."""
        return self.visitor.cluster

    def ask(self, question: Callable[[Queries], T], otherwise: Callable[[Exception], T]) -> T:
        """See JobReader."""
        try:
            return question(self.visitor.queries())
        except FAILURES as error:
            self.problems["coordinator"] = str(error)
            return otherwise(error)

    def place(self, key: JobKey) -> Document:
        """See JobReader. What the status of the job says has to do where no coordinator tells more."""
        bounds = self.visitor.bounds((key.namespace,))
        try:
            return bounds.job(self.visitor.queries().job(key))
        except UnknownObject:
            return dict(ABSENT)  # the coordinator has not seen the job yet
        except FAILURES as error:
            self.problems["coordinator"] = str(error)
            return dict(ABSENT)

    def check(self, job: TorchJob) -> list[Obstacle]:  # noqa: ARG002
        """See JobReader. Pages do not ask each second whether nodes still hold a job."""
        raise CheckUnavailable("pages do not ask this")
