"""The execution of a plan.

One rule: one `match` over the actions, in order. Any sign that the plan is outdated ends it, and the key is observed
again. Every action may find its work done already.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from crds import integers, labels
from crds.api_resources import PODS, RECREATE_REQUESTS, TORCHJOBS
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from kube import errors
from kube.api import Cluster, Manifest
from queues.values import Refusal
from reconcilers.apply import events, model_records, object_writer
from reconcilers.apply.object_writer import KeyLost, ObjectWriter, ObserveAgain, Obstructed, classify_refusal
from reconcilers.apply.parallel import ParallelRun
from reconcilers.errors import NameTaken
from reconcilers.plan.status import PODS_FORBIDDEN
from reconcilers.pods import measure
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    AnnotateJob,
    CreateObject,
    CreatePods,
    CreateService,
    DeleteJob,
    DeleteObject,
    DeletePods,
    DeleteService,
    EmitEvent,
    InvalidPod,
    NoMemory,
    NoRoom,
    Obstacle,
    PatchObject,
    PatchPodMetadata,
    PatchRequest,
    Plan,
    RaiseCharge,
    RecordModel,
    SetWorkers,
    WriteStatus,
)
from reconcilers.views import scale_request_view
from reconcilers.views.pod_view import PodView

log = logging.getLogger(__name__)
T = TypeVar("T")

ASK_SECONDS = 10.0
"""The time in which a reconcile may begin to ask pods for something: to restart, to start. All pods of a job wait for
the last of them, and a question is safe to repeat: no other look at the job has to come between."""
UNTRACKED: list[Any] = [{}]
"""The managedFields with which the API server no longer records who has set which field of a pod. The record takes more
than half of its time for a patch, and as much room as the rest of a small pod."""
FENCE_SECONDS = 0.05
"""The largest age of a check of the fence when a write begins: less than a request may take on a slow network."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a plan was carried out."""

    requeue_after: float | None = None
    """Seconds after which the key is observed again; None if an event will follow."""
    obstacle: Obstacle | None = None
    """What ended the plan; the next plan has to know it."""
    error: errors.ClusterError | NameTaken | None = None
    """The error behind a Blocker."""
    quiet: bool = False
    """Whether all of the plan was done, and the plan only wrote the job's status and created at most a single pod."""
    written: Manifest | None = None
    """The job after its status was written."""
    pod: Manifest | None = None
    """The created pod."""


@dataclass(slots=True)
class Application:
    """The execution of one plan."""

    cluster: Cluster
    settings: ReconcileSettings
    executor: Executor
    clock: Callable[[], float]
    key: JobKey
    holds: Callable[[], bool]
    """The fence: returns whether this worker still holds the key."""
    raise_charge: Callable[[int, Amounts], Refusal]
    """Charges an attempt for more (`queues.work.WorkSink.raise_charge`)."""
    began: float = field(init=False)
    writes: int = 0
    pod_versions: list[int] = field(default_factory=list)
    """The resourceVersions of the pods created and patched. The next observation must include them, or the work would
    be done again."""
    request_versions: dict[str, int] = field(default_factory=dict)
    """The resourceVersions of the patched scale requests, by uid. The next observation must include them, too."""
    outdated: bool = False
    """Whether a pod that was to be deleted no longer existed: the actions after it must not follow."""
    written: Manifest | None = None
    """The job after its status was written."""
    unanswered: Manifest | None = None
    """The change of the status whose write ended with an error. The API server may have taken it all the same."""
    pod: Manifest | None = None
    """The last created pod."""
    _objects: ObjectWriter = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()
        requests = self.settings.version(RECREATE_REQUESTS) or RECREATE_REQUESTS
        self._objects = ObjectWriter(self.cluster, self.key, self.settings.name_retry, requests)

    def run(self, plan: Plan) -> Outcome:
        """Carry out the part of a plan that fits into one reconcile.

        Any other error of the API server is raised; the queue then tries again with a back-off.
        """
        try:
            for batch in _batches(plan.actions):
                if self.outdated:
                    raise ObserveAgain(self.settings.name_retry)
                self._do(batch)
        except ObserveAgain as again:
            return Outcome(again.after)
        except Obstructed as end:
            return Outcome(obstacle=end.obstacle, error=end.error)
        except KeyLost:
            log.info("%s: another worker holds the key now; the rest of the plan is dropped", self.key)
            return Outcome(plan.requeue_after)
        quiet = all(map(_is_quiet, plan.actions))
        return Outcome(plan.requeue_after, quiet=quiet, written=self.written, pod=self.pod)

    def _do(self, batch: tuple[Action, ...]) -> None:
        action = batch[0]
        match action:
            case CreateObject(resource):
                objects = [each for each in batch if isinstance(each, CreateObject)]
                self._in_parallel(self._objects.create, objects, fenced=True, asks=resource == RECREATE_REQUESTS)
            case WriteStatus(change, resource_version):
                self._write_status(change["status"], resource_version)
            case CreatePods(manifests):
                self._in_parallel(self._create_pod, manifests, fenced=True)
            case DeletePods(pods, at_once, seconds):
                # A pod that looked unfinished to a worker that has lost the key may have finished since.
                self._in_parallel(partial(self._delete_pod, 0 if at_once else seconds), pods, fenced=True)
            case PatchPodMetadata():
                self._in_parallel(self._patch_pod, _patches(batch), fenced=True, asks=True)
            case RaiseCharge():
                self._raise_charge(action)
            case EmitEvent():
                self.writes += 1
                self._objects.emit_event(action, self.clock())
            case PatchRequest():
                self._in_parallel(self._patch_request, [action], fenced=True)
            case DeleteJob():
                self._objects.delete(TORCHJOBS, self.key.name, self.key.uid)
            case _:
                self._do_beside(action)

    def _do_beside(
        self,
        action: CreateService | DeleteService | PatchObject | SetWorkers | AnnotateJob | DeleteObject | RecordModel,
    ) -> None:
        """Carry out an action beside the job's pods and status."""
        objects = self._objects
        match action:
            case CreateService(manifest):
                self._in_parallel(objects.create_service, [manifest], fenced=True)
            case DeleteService(name):
                self._in_parallel(objects.delete_service, [name])
            case PatchObject(resource, name, change):
                self._in_parallel(partial(objects.patch, resource, name), [change], fenced=True)
            case SetWorkers(workers, resource_version):
                self._in_parallel(partial(objects.set_workers, workers), [resource_version], fenced=True)
            case AnnotateJob(annotations):
                self._in_parallel(objects.annotate_job, [annotations], fenced=True)
            case RecordModel():
                self._in_parallel(partial(model_records.record, objects, self.clock), [action], fenced=True)
            case DeleteObject(resource, name, uid):
                delete = objects.delete_request if resource == RECREATE_REQUESTS else partial(objects.delete, resource)
                self._in_parallel(partial(delete, name), [uid])

    def _fence(self) -> None:
        if not self.holds():
            raise KeyLost

    def _raise_charge(self, action: RaiseCharge) -> None:
        refused = self.raise_charge(action.attempt, action.charge)
        match refused:
            case "quota" | "cohort" | "pool":
                raise Obstructed(NoMemory(refused) if action.for_memory else NoRoom(refused))
            case "":
                log.info("%s: the job is charged for what its pods request", self.key)
            case _:  # the key or the reservation is lost: the next observation shows which
                raise ObserveAgain(0.0)

    def _write_status(self, change: Manifest, resource_version: str) -> None:
        namespace, name = self.key.namespace, self.key.name
        patch = {"status": change}
        self.unanswered = change
        try:
            self.written = self.cluster.patch(
                TORCHJOBS, name, patch, namespace, subresource="status", resource_version=resource_version
            )
        except (errors.Conflict, errors.NotFound) as error:
            raise ObserveAgain(0.0) from error
        self.unanswered = None
        self.writes += 1
        if "phase" in change:
            log.info("%s: %s", self.key, change["phase"])

    def _in_parallel(
        self, work: Callable[[T], Any], items: Sequence[T], *, fenced: bool = False, asks: bool = False
    ) -> None:
        """Do work on all items, some at a time; all begun work is over when this function returns or raises.

        With `asks`, more are done at a time, and for longer. With `fenced`, the fence is checked before each few
        items, and before each item that begins long after the last check: this process may have been suspended between
        any two requests.
        """
        checked_at, remaining, before = 0.0, 0, len(self.pod_versions)

        def may_begin(at: int) -> None:
            nonlocal checked_at, remaining
            if before + at >= self.settings.parallel_writes and self._is_budget_spent(asks):
                raise ObserveAgain(0.0)
            if fenced and not (remaining and 0 <= self.clock() - checked_at <= FENCE_SECONDS):
                checked_at, remaining = self.clock(), self.settings.parallel_writes
                self._fence()
            remaining -= 1
            self.writes += 1

        failures = ParallelRun(work, items, self.executor, may_begin).run(
            self.settings.parallel_asks if asks else self.settings.parallel_writes
        )
        if failures:
            raise next(filter(_is_about_manifest, failures), failures[0])

    def _is_budget_spent(self, asks: bool) -> bool:
        """Return whether this reconcile has taken too long, or may do no further write."""
        longest = max(ASK_SECONDS if asks else 0.0, self.settings.most_seconds)
        return self.clock() - self.began > longest or (not asks and self.writes >= self.settings.most_writes)

    def _create_pod(self, manifest: Manifest) -> None:
        try:
            pod = self._objects.make(PODS, manifest)
            if changed := events.pod_changed(manifest, pod):
                self._objects.emit_event(changed, self.clock())
        except errors.AlreadyExists:
            pod = self._same_pod(manifest)
        except errors.Invalid as error:
            causes = "; ".join(f"{cause.field}: {cause.message}" for cause in error.causes)
            raise Obstructed(InvalidPod(f"pod {manifest['metadata']['name']}: {causes or error}")) from error
        except errors.Forbidden as error:
            if self._objects.is_new(PODS, manifest, error):
                raise classify_refusal(error, PODS_FORBIDDEN) from error
            pod = self._same_pod(manifest)
        self.pod = pod
        self._record_version(pod)
        if measure.is_larger(pod, manifest):
            log.info("%s: pod %s requests more than its template", self.key, pod["metadata"]["name"])
            raise ObserveAgain(0.0)

    def _same_pod(self, manifest: Manifest) -> Manifest:
        """Return the pod that has the name already. Raises ObserveAgain if this pod is of an earlier attempt or
        restart.
        """
        pod = self._objects.existing(PODS, manifest)
        current, expected = pod["metadata"]["labels"], manifest["metadata"]["labels"]
        identity = (labels.JOB_UID, labels.ATTEMPT, labels.RESTART)
        if any(current.get(name) != expected[name] for name in identity) or "deletionTimestamp" in pod["metadata"]:
            raise ObserveAgain(self.settings.name_retry)
        return pod

    def _delete_pod(self, seconds: int | None, pod: PodView) -> None:
        if not self._objects.delete(PODS, pod.name, pod.uid, grace_period_seconds=seconds):
            self.outdated = True  # another worker may have deleted a failed pod, and has counted its failure then

    def _patch_pod(self, patch: tuple[PodView, Mapping[str, Any]]) -> None:
        pod, metadata = patch
        try:
            change = {"metadata": {**metadata, "uid": pod.uid, "managedFields": UNTRACKED}}
            self._record_version(self.cluster.patch(PODS, pod.name, change, self.key.namespace))
        except (errors.NotFound, errors.Conflict):
            self.outdated = True
        except errors.Invalid as error:
            if not object_writer.is_namesake(error):
                raise
            self.outdated = True

    def _patch_request(self, action: PatchRequest) -> None:
        written = scale_request_view.trim(self._objects.patch_request(action))
        self.request_versions[written.uid] = scale_request_view.version(written)

    def _record_version(self, pod: Manifest) -> None:
        version = pod["metadata"]["resourceVersion"]
        self.pod_versions.append(integers.parse(version, 0))


def _batches(actions: Iterable[Action]) -> Iterator[tuple[Action, ...]]:
    """Yield the actions in order: one by one, except that consecutive creations of objects of one kind are yielded
    together, and consecutive openings of start gates: each pod with a rank of its own has a write of its own.
    """

    def batch_of(numbered: tuple[int, Action]) -> object:
        number, action = numbered
        match action:
            case CreateObject(resource):
                return resource
            case PatchPodMetadata(_, metadata) if labels.START in metadata.get("annotations", {}):
                return labels.START
        return number

    for _, batch in itertools.groupby(enumerate(actions), batch_of):
        yield tuple(action for _, action in batch)


def _patches(batch: Iterable[Action]) -> list[tuple[PodView, Mapping[str, Any]]]:
    """Return the changes of the metadata of pods, for each pod."""
    return [(pod, each.metadata) for each in batch if isinstance(each, PatchPodMetadata) for pod in each.pods]


def _is_quiet(action: Action) -> bool:
    """Return whether an action only writes the status, emits an Event, or creates a single pod. A plan creates pods in
    one action at most."""
    match action:
        case WriteStatus() | EmitEvent():
            return True
        case CreatePods(manifests):
            return len(manifests) == 1
    return False


def _is_about_manifest(failure: Exception) -> bool:
    return isinstance(failure, Obstructed) and isinstance(failure.obstacle, InvalidPod)
