"""Making the jobs of one submission, and deleting the jobs again.

One rule: no created job is lost from sight. Each job is printed as soon as it is made. If not all jobs can be made, or
the user interrupts, the jobs that were made are found by the mark of the submission (including jobs whose answer never
came), and deleted again or named with the command that deletes them.
"""

import contextlib
from collections.abc import Callable, Sequence

from coordinator.code.config_map_store import ConfigMapStore
from coordinator.errors import CoordinatorError
from coordinator.follow import deletion
from coordinator.runs import launch, validation
from coordinator.runs.validation import Submission, ValidatedJob
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest

Tell = Callable[[str], object]


class PartlySubmitted(CoordinatorError):
    """Not all jobs were made, and the jobs that were made could not be deleted. The message names the jobs."""


def nothing(_: object) -> None:
    """Do nothing."""


class JobMaker:
    """Makes jobs whose names are free, or, to `replace`, deletes the jobs that have these names."""

    def __init__(
        self,
        cluster: Cluster,
        made: Callable[[JobKey], object] = nothing,
        *,
        replace: bool = False,
        tell: Tell = nothing,
    ) -> None:
        """Prepare to make jobs. `made` is called with each job, and `tell` gets a line for each that is deleted."""
        self._cluster = cluster
        self._made = made
        self._replace = replace
        self._tell = tell

    def validate(self, document: Submission) -> ValidatedJob:
        """Validate a job, without making it. Raise any ClusterError, AlreadyExists with a solution."""
        try:
            return validation.validate(self._cluster, document)
        except errors.AlreadyExists as error:
            if not self._replace:
                raise errors.AlreadyExists(self._second_try(document)) from error
        # The name itself is valid, because a job has this name. Another name stands for it, so that the other fields
        # are validated.
        metadata = {**document.body["metadata"]}
        metadata["generateName"] = f"{metadata.pop('name')[:40]}-"
        body = {**document.body, "metadata": metadata}
        return validation.validate(self._cluster, Submission(document.source, document.namespace, body))

    def make(self, document: Submission) -> JobKey:
        """Make a job. Raise any ClusterError, Conflict if the job that it replaces does not go."""
        present = self._delete_present(document) if self._replace else None
        try:
            key = self._make(document, waits_for_name=present is not None)
        except errors.AlreadyExists as error:
            if present is None or self._present(document) != present:
                raise
            name = f"{present.namespace}/{present.name}"
            raise errors.Conflict(f"job {name} was deleted, and a finalizer keeps it: try again later") from error
        self._made(key)
        return key

    def _make(self, document: Submission, *, waits_for_name: bool) -> JobKey:
        body = _with_namespace(document)
        if document.archive is None:
            return launch.create(self._cluster, body, waits_for_name=waits_for_name)
        store, submitted = ConfigMapStore(self._cluster), launch.mark(body)
        return launch.launch(
            self._cluster, body, document.archive, store, submitted=submitted, waits_for_name=waits_for_name
        )

    def _present(self, document: Submission) -> JobKey | None:
        name = document.body["metadata"].get("name")
        found = launch.find(self._cluster, str(name), document.namespace) if name else None
        return None if found is None else JobKey.of(found)

    def _delete_present(self, document: Submission) -> JobKey | None:
        present = self._present(document)
        if present is not None:
            launch.delete(self._cluster, present)
            self._tell(f"job {present.namespace}/{present.name} deleted, to be replaced")
        return present

    def take_back(self, documents: Sequence[Submission], created: Sequence[JobKey], cause: BaseException) -> int:
        """Delete the jobs that were made, and return their number. Raise PartlySubmitted if the deletion fails.

        The job of the first document that was not made may exist, too, although its answer never came.
        """
        remaining = dict.fromkeys(created)
        try:
            with contextlib.suppress(errors.Forbidden):
                for document in documents[len(created) :][:1]:
                    if (own := launch.find_own(self._cluster, _with_namespace(document))) is not None:
                        remaining[own] = None
            count = len(remaining)
            for key in [*remaining]:
                launch.delete(self._cluster, key)
                del remaining[key]
        except (errors.ClusterError, KeyboardInterrupt) as error:
            names = " ".join(f"{key.namespace}/{key.name}" for key in remaining)
            reasons = "; ".join(filter(None, (str(cause), f"they could not be deleted: {error}".rstrip(": "))))
            raise PartlySubmitted(
                f"some jobs were submitted ({reasons}); to delete them: torchq job delete {names}"
            ) from error
        return count

    def _second_try(self, document: Submission) -> str:
        name, namespace = document.body["metadata"]["name"], document.namespace
        try:
            item = self._cluster.get(TORCHJOBS, name, namespace)
            if deletion.is_deleting(item):
                what = f"job {namespace}/{name} still exists: {deletion.describe(item)}"
                return f"{document.source}: {what}; submit this one when it is gone, or under another name"
            phase = (item.get("status") or {}).get("phase") or "Pending"
        except errors.ClusterError:
            phase = "of unknown phase"
        return (
            f"{document.source}: job {namespace}/{name} already exists ({phase}): --replace deletes it and submits "
            f"this one, `torchq job delete {namespace}/{name}` only deletes it; with metadata.generateName instead of "
            "metadata.name each submission has a name of its own"
        )


def _with_namespace(document: Submission) -> Manifest:
    metadata = {**document.body["metadata"], "namespace": document.namespace}
    return {**document.body, "metadata": metadata}
