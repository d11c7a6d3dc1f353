"""Does what a visitor has asked for and confirmed.

One rule: the API server gets the change with the visitor's own rights, so that it decides. An object that is not the
one that the page showed is never touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from coordinator.control import job_changes
from coordinator.control.change_author import ChangeAuthor
from coordinator.dashboard import paths
from coordinator.dashboard.acts import verbs
from coordinator.dashboard.acts.verbs import JOB, QUEUE, VERBS, Verb
from coordinator.dashboard.visitors import Visitor
from coordinator.errors import CoordinatorError
from coordinator.follow import job_objects
from coordinator.query.questions import UNKNOWN_PREFIX, UnknownObject
from crds.api_resources import TENANT_QUEUES
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest

OFF = "this dashboard changes nothing: an admin switches that on with the value dashboard.actions of the chart"
LONGEST_REASON = 500
MOST_DIGITS = 9


class NotAsked(CoordinatorError):
    """A request names no change that there is."""


@dataclass(frozen=True, slots=True)
class AskedChange:
    """A change that a visitor thinks of: the verb and the object."""

    verb: Verb
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        """The path of the page of the object."""
        is_job = self.kind == JOB
        return paths.of_job(f"{self.namespace}/{self.name}") if is_job else paths.of_queue(self.name)

    @property
    def subject(self) -> str:
        """The object, for people."""
        return f"job {self.namespace}/{self.name}" if self.kind == JOB else f"queue {self.name}"


def target(fields: Mapping[str, str]) -> AskedChange:
    """Return what a request asks for. Raises NotAsked."""
    kind, name = fields.get("kind", ""), fields.get("name", "")
    namespace = fields.get("namespace", "") if kind == JOB else ""
    verb = VERBS.get(kind, {}).get(fields.get("verb", ""))
    if verb is None or not name or (kind == JOB and not namespace):
        raise NotAsked("the request names no change and no object")
    return AskedChange(verb, kind, namespace, name, fields.get("uid", ""))


def read(visitor: Visitor, asked: AskedChange) -> Manifest:
    """Return the object as it is now. Raises NotAsked where nothing may be changed, UnknownObject for a job of which
    the visitor is told nothing, NotFound, and other ClusterErrors."""
    if not visitor.may_act:
        raise NotAsked(OFF)
    if asked.kind == QUEUE:
        return visitor.cluster.get(TENANT_QUEUES, asked.name)
    if not visitor.bounds((asked.namespace,)).reader.may_read(asked.namespace):
        raise UnknownObject(f"{UNKNOWN_PREFIX}{asked.subject}")
    return job_objects.read(visitor.cluster, JobKey(asked.namespace, asked.name, asked.uid))


def act(visitor: Visitor, asked: AskedChange, fields: Mapping[str, str]) -> list[str]:
    """Make the change, and return what there is to say about it. Raises CoordinatorError and ClusterError."""
    if asked.kind == JOB and not asked.uid:
        raise NotAsked("the request does not say which job of this name is meant: go back to the page of the job")
    said = list[str]()
    item = read(visitor, asked)
    reason = " ".join(fields.get("reason", "").split())[:LONGEST_REASON]
    author = ChangeAuthor(
        cluster=visitor.cluster, user=lambda: visitor.name, tell=said.append, warn=said.append, reason=reason
    )
    now = datetime.now(UTC)
    if asked.kind == QUEUE:
        weight = _weight(fields.get("weight", "")) if asked.verb.name == "weight" else 0
        author.change_queue(asked.name, verbs.change_queue(asked.verb.name, asked.name, weight))
    elif asked.verb.name == "bump":
        bumped = job_changes.bump(item, lambda queue: visitor.queries().queue(queue), now)
        if bumped.change is not None:
            author.change_job(item, bumped.change)
        said += [bumped.note] if bumped.note else []
    else:
        author.change_job(item, verbs.change_job(asked.verb.name, item, now))
    return said


def code(error: Exception) -> int:
    """Return the HTTP status of the answer to a change that was not made."""
    match error:
        case NotAsked() | errors.Invalid():
            return 400
        case errors.Forbidden():
            return 403
        case errors.NotFound() | UnknownObject():
            return 404
        case errors.Conflict():
            return 409
    return 503


def _weight(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise NotAsked(f"weight: {text[:20]!r} is not a whole number")
    return int(text)
