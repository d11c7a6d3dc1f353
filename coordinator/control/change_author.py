"""One change of a job or a queue: its patch, then its Event.

One rule: the change comes first and stays, even if the Event cannot be written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from coordinator.control import audit_events
from coordinator.wording import queue_facts
from crds.api_resources import EVENTS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.api import Cluster, Manifest


@dataclass(frozen=True, slots=True)
class Change:
    """A patch of one object."""

    patch: Manifest
    code: str
    """The reason code of the Event."""
    text: str
    """What has been done to which object, as in `queue a: weight 3`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAuthor:
    """Makes changes with the client and in the name of one person."""

    cluster: Cluster
    user: Callable[[], str]
    """Returns the name of the person."""
    tell: Callable[[str], object]
    """What gets the text of a change that is done."""
    warn: Callable[[str], object]
    """What gets a note about a change whose Event could not be written."""
    reason: str = ""
    dry_run: bool = False

    def change_job(self, job: Manifest, change: Change) -> Manifest:
        """Patch a job, report the change, and return the changed job."""
        metadata = job["metadata"]
        # The uid keeps the patch from a job of the same name that was submitted in the meantime.
        patch = {**change.patch, "metadata": {**change.patch.get("metadata", {}), "uid": metadata["uid"]}}
        after = self.cluster.patch(TORCHJOBS, metadata["name"], patch, metadata["namespace"], dry_run=self.dry_run)
        self.report(after, change.code, change.text)
        return after

    def change_queue(self, name: str, change: Change) -> Manifest:
        """Patch a queue, report the change, and return the changed queue."""
        try:
            after = self.cluster.patch(TENANT_QUEUES, name, change.patch, dry_run=self.dry_run)
        except errors.NotFound as error:
            hint = f"`torchq queue create {name}` makes the queue, also where jobs use it without an object"
            raise errors.NotFound(f"{error}: {hint}") from error
        except errors.Invalid as error:
            raise errors.Invalid(str(error), error.causes + self._ineffective_limits(name)) from error
        self.report(after, change.code, change.text)
        return after

    def _ineffective_limits(self, name: str) -> tuple[errors.FieldCause, ...]:
        """Return the stored limits that make an API server refuse any change of the queue's limits.

        They were set under an earlier version, and the API server's answer does not name them.
        """
        try:
            problems = queue_facts.ineffective(self.cluster.get(TENANT_QUEUES, name))
        except errors.ClusterError:
            return ()
        hint = f"(as stored: torchq queue set-quota {name} sets or --unset removes it)"
        return tuple(errors.FieldCause(problem.field, f"{problem.message} {hint}") for problem in problems)

    def report(self, item: Manifest, code: str, text: str) -> None:
        """Tell a change that is done, then write an Event with that reason code."""
        self.tell(text)
        if self.dry_run:
            return
        try:
            body = audit_events.build_event(item, code, text, self.reason, self.user(), datetime.now(UTC))
            self.cluster.create(EVENTS, body, body["metadata"]["namespace"])
        except errors.ClusterError as error:
            self.warn(f"note: the change is done, but its event could not be written: {error}")
