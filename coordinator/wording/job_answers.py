"""What is asked about a job before it can be explained or shown: of the API server and of a coordinator.

One rule: who asks brings the access, with the rights of the reader. What nobody answers is left out, or says why.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from coordinator.follow import deletion
from coordinator.query.questions import Document, Queries, unknown_reports
from coordinator.routing.feasibility import Obstacle
from coordinator.runs.submission_findings import CheckUnavailable
from coordinator.wording import explanations, job_context, job_details, job_growth, job_state, room_holders
from coordinator.wording.explanations import KnownFacts
from coordinator.wording.job_details import JobContext
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from kube.client import KubernetesCluster

T = TypeVar("T")
REPORT_VARIABLE = "TORCHQ_REPORT_URL"
"""The variable of pods that can report."""
BEYOND_NODES = ("ExceedsNodes", "ExceedsPool")


class JobReader(Protocol):
    """The access of one reader to the cluster and to a coordinator."""

    @property
    def cluster(self) -> KubernetesCluster:
        """The Kubernetes API."""

    def ask(self, question: Callable[[Queries], T], otherwise: Callable[[Exception], T]) -> T:
        """Return the answer of a coordinator, or, if none answers, the result of `otherwise` for the error."""

    def place(self, key: JobKey) -> Document:
        """Return the position of a job (`Queries.job`); the state `absent` if the reader is not told."""

    def check(self, job: TorchJob) -> list[Obstacle]:
        """Return what keeps a job from ever running. Raises CheckUnavailable."""


def read_known(reader: JobReader, item: Manifest, now: datetime) -> KnownFacts:
    """Return what `explanations.describe` needs to explain a job. Raises any ClusterError if pods cannot be read."""
    if deletion.is_deleting(item):
        return KnownFacts(objects=job_context.read(reader.cluster, item, now))
    if explanations.is_waiting(item):
        return KnownFacts(place=room_holders.read(reader.cluster, reader.place(JobKey.of(item))))
    is_admitted = job_state.is_admitted(item)
    objects = job_context.read(reader.cluster, item, now) if is_admitted else JobContext(now=now)
    is_starting = is_admitted and item["status"].get("phase") != "Running"
    return KnownFacts(
        objects=objects,
        rest=read_growth(reader, item),
        if_resumed=_if_resumed(reader, item),
        too_small=_too_small(reader, item) if is_starting else (),
        training=read_reports(reader, item, objects.pods),
    )


def read_details(
    reader: JobReader, item: Manifest, now: datetime, *, embedded: bool = False
) -> tuple[JobContext, Document]:
    """Return the objects around a job, and the document with everything about the job; `embedded` means a local
    cluster. Raises any ClusterError if pods cannot be read."""
    context = job_context.read(reader.cluster, item, now, embedded=embedded)
    training = read_reports(reader, item, context.pods)
    return context, job_details.describe(item, context) | {
        "workers": read_growth(reader, item),
        "size": job_growth.size_of(item),
        "training": training,
        "silence": explanations.describe_silence(item, training, now),
    }


def read_growth(reader: JobReader, item: Manifest) -> Document:
    """Return how many workers a job has and wants, and why the missing workers wait; empty if the job waits for no
    workers. If no coordinator answers, the reason says so.
    """
    counts = job_growth.counts_of(item)
    if counts["wanted"] <= counts["granted"]:
        return {}
    answer = reader.ask(
        lambda queries: queries.job(JobKey.of(item)),
        lambda error: {"rest": {"code": "Unknown", "message": str(error)}},
    )
    reason = answer.get("rest") or answer.get("growth") or {"code": "New", "message": "no request is known yet"}
    return {**reason, **counts}


def read_reports(reader: JobReader, item: Manifest, pods: Iterable[Manifest]) -> Document:
    """Return the reports of a job's pods, which a coordinator knows, or why they are not known; empty if the pods
    cannot report."""
    containers = (each for pod in pods for each in pod["spec"].get("containers") or ())
    if not any(entry.get("name") == REPORT_VARIABLE for each in containers for entry in each.get("env") or ()):
        return {}
    return reader.ask(lambda queries: queries.reports(JobKey.of(item)), unknown_reports)


def _too_small(reader: JobReader, item: Manifest) -> list[str]:
    """Return why the nodes no longer hold an admitted job; empty if they do, or if no coordinator says so."""
    try:
        found = reader.check(torchjob.parse(item))
    except (CheckUnavailable, InvalidObject):
        return []
    return [each.message for each in found if each.code in BEYOND_NODES]


def _if_resumed(reader: JobReader, item: Manifest) -> Document | None:
    """Return the forecast for a suspended job if it were resumed now; None if the job is not suspended or holds
    room."""
    if not item["spec"].get("suspend") or job_state.is_admitted(item) or job_state.is_finished(item):
        return None
    return reader.ask(
        lambda queries: queries.job(JobKey.of(item)).get("ifResumed"), lambda error: {"unknown": str(error)}
    )
