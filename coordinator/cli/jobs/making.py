"""Making the jobs of one submission, and taking them back.

One rule: nobody loses track of a job. Each is told as soon as it is made. If not all can be made, or the user
interrupts, those that were made are found by the mark of the submission (also one whose answer never came), and deleted
again or named with the command that deletes them.
"""

import time
from collections.abc import Callable, Sequence

from coordinator.code.config_map_store import ConfigMapStore
from coordinator.errors import CoordinatorError
from coordinator.follow import deletion
from coordinator.runs import launch, validation
from coordinator.runs.validation import Submission, ValidatedJob
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest

REPLACE_SECONDS = 60.0
"""How long a job of the same name may take to be gone."""
_LOOK_SECONDS = 0.2
Tell = Callable[[str], object]


class PartlySubmitted(CoordinatorError):
    """Not all jobs were made, and those that were could not be deleted. The message names them."""


def nothing(_: object) -> None:
    """Do nothing."""


class JobMaker:
    """Makes jobs whose names are free."""

    def __init__(self, cluster: Cluster, made: Callable[[JobKey], object] = nothing) -> None:
        """Prepare to make jobs. `made` is called with each job that was made."""
        self._cluster = cluster
        self._made = made

    def validate(self, document: Submission) -> ValidatedJob:
        """Validate a job, without making it. Raise any ClusterError, AlreadyExists with what to do."""
        try:
            return validation.validate(self._cluster, document)
        except errors.AlreadyExists as error:
            raise errors.AlreadyExists(self._second_try(document)) from error

    def make(self, document: Submission) -> JobKey:
        """Make a job. Raise any ClusterError."""
        key = self._make(document)
        self._made(key)
        return key

    def _make(self, document: Submission) -> JobKey:
        if document.archive is None:
            return JobKey.of(self._cluster.create(TORCHJOBS, document.body, document.namespace))
        metadata = {"namespace": document.namespace, **document.body["metadata"]}
        return launch.launch(
            self._cluster,
            {**document.body, "metadata": metadata},
            document.archive,
            ConfigMapStore(self._cluster),
            submitted=_mark(document.body),
        )

    def take_back(self, documents: Sequence[Submission], created: Sequence[JobKey], cause: BaseException) -> int:
        """Delete the jobs that were made, and return their number. Raise PartlySubmitted if that fails."""
        remaining = dict.fromkeys(created)
        try:
            remaining |= dict.fromkeys(self._of(documents))
            count = len(remaining)
            for key in [*remaining]:
                self._delete(key)
                del remaining[key]
        except (errors.ClusterError, KeyboardInterrupt) as error:
            names = " ".join(f"{key.namespace}/{key.name}" for key in remaining)
            reasons = "; ".join(filter(None, (str(cause), f"they could not be deleted: {error}".rstrip(": "))))
            raise PartlySubmitted(
                f"some jobs were submitted ({reasons}); to delete them: torchq job delete {names}"
            ) from error
        return count

    def _of(self, documents: Sequence[Submission]) -> list[JobKey]:
        """Return the jobs that exist of a submission, by its mark; none if this account may not list jobs."""
        marks = {_mark(document.body): document for document in documents}
        try:
            listed = [
                item
                for namespace in dict.fromkeys(document.namespace for document in documents)
                for item in self._cluster.list(TORCHJOBS, namespace).items
            ]
        except errors.Forbidden:
            return []
        return [JobKey.of(item) for item in listed if _mark(item) in marks and _is_of(item, marks[_mark(item)])]

    def _delete(self, key: JobKey) -> None:
        try:
            self._cluster.delete(TORCHJOBS, key.name, key.namespace, uid=key.uid)
        except (errors.NotFound, errors.Conflict):
            return  # somebody has deleted it already

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


class ReplacingMaker(JobMaker):
    """Makes jobs, and deletes those that have their names."""

    def __init__(
        self,
        cluster: Cluster,
        made: Callable[[JobKey], object] = nothing,
        tell: Tell = nothing,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Prepare to make jobs. `tell` gets a line for each job that is deleted."""
        super().__init__(cluster, made)
        self._tell = tell
        self._pause = pause

    def validate(self, document: Submission) -> ValidatedJob:
        """Validate a job, also if its name is taken."""
        try:
            return validation.validate(self._cluster, document)
        except errors.AlreadyExists:
            metadata = document.body["metadata"]
            # The name itself is valid: a job has it. Another one stands for it, so that all the rest is validated.
            other = {name: value for name, value in metadata.items() if name != "name"}
            body = {**document.body, "metadata": {**other, "generateName": f"{metadata['name'][:40]}-"}}
            return validation.validate(self._cluster, Submission(document.source, document.namespace, body))

    def make(self, document: Submission) -> JobKey:
        """Delete the job of that name and make another. Raise Conflict if the first one does not go."""
        name, namespace = document.body["metadata"].get("name"), document.namespace
        if name:
            self._remove(str(name), namespace)
        return super().make(document)

    def _remove(self, name: str, namespace: str) -> None:
        try:
            key = JobKey.of(self._cluster.get(TORCHJOBS, name, namespace))
            self._cluster.delete(TORCHJOBS, name, namespace, uid=key.uid)
            self._tell(f"job {namespace}/{name} deleted, to be replaced")
            for _ in range(int(REPLACE_SECONDS / _LOOK_SECONDS)):
                if JobKey.of(self._cluster.get(TORCHJOBS, name, namespace)) != key:
                    break
                self._pause(_LOOK_SECONDS)
            else:
                raise errors.Conflict(f"job {namespace}/{name} was deleted, and a finalizer keeps it: try again later")
        except errors.NotFound:
            return


def _mark(item: Manifest) -> str:
    return str((item["metadata"].get("annotations") or {}).get(labels.SUBMITTED) or "")


def _is_of(item: Manifest, document: Submission) -> bool:
    metadata, made = document.body["metadata"], item["metadata"]
    same = metadata["name"] == made["name"] if metadata.get("name") else True
    return same and made["namespace"] == document.namespace and bool(_mark(item))
