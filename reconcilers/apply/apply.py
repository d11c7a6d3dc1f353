"""Carry out a plan.

One rule: one `match` over the actions, in order; whatever shows that the plan is outdated ends it, and the key is
observed again. Every action may find its work done already.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from crds import integers, labels, owners
from crds.api_resources import EVENTS, PODS, RECREATE_REQUESTS, SERVICES, TORCHJOBS, Resource
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from kube import errors
from kube.api import Cluster, Manifest
from queues.values import Refusal
from reconcilers.apply import events
from reconcilers.apply.parallel import ParallelRun
from reconcilers.errors import NameTaken
from reconcilers.plan import over_quota
from reconcilers.plan.interruptions import (
    Blocked,
    ChargeRefused,
    KeyLost,
    ObserveAgain,
    PodRefused,
    QuotaRefused,
    classify_refusal,
)
from reconcilers.plan.status import NAME_TAKEN, PODS_FORBIDDEN
from reconcilers.pods import measure
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    CreateObject,
    CreatePods,
    CreateService,
    DeleteJob,
    DeleteObject,
    DeletePods,
    DeleteService,
    EmitEvent,
    NoRoom,
    OverQuota,
    PatchObject,
    PatchPodMetadata,
    Plan,
    RaiseCharge,
    WriteStatus,
)
from reconcilers.views import recreate_request
from reconcilers.views.pod_view import PodView

log = logging.getLogger(__name__)
T = TypeVar("T")

FENCE_SECONDS = 0.05
"""How old the answer of the fence may be when a write begins: less than a request takes on its way on a bad day."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a plan came."""

    requeue_after: float | None = None
    """Seconds after which to observe again; None: when something happens."""
    refused: str = ""
    """What the API server said against a pod of the job; the same pod will never be taken."""
    hindered: Blocked | None = None
    """Something of the job cannot be made there now: a permission, a policy, a kind that is not installed."""
    over_quota: OverQuota | None = None
    """The ResourceQuota of the namespace for which something was refused."""
    no_room: NoRoom | None = None
    """What had no room for what the job's pods ask for."""
    quiet: bool = False
    """Whether all of it was done, and it was nothing but to write the job's status and to make a single pod."""
    written: Manifest | None = None
    """The job after that."""
    pod: Manifest | None = None
    """The pod."""


@dataclass(slots=True)
class Application:
    """One plan being carried out."""

    cluster: Cluster
    settings: ReconcileSettings
    executor: Executor
    clock: Callable[[], float]
    key: JobKey
    holds: Callable[[], bool]
    """The fence: whether the key is still ours."""
    raise_charge: Callable[[int, Amounts], Refusal]
    """Charges the attempt of that number for more (`queues.work.WorkSink.raise_charge`)."""
    began: float = field(init=False)
    writes: int = 0
    made: list[int] = field(default_factory=list)
    """The resourceVersions of the pods made and marked: the next look must see them, or would do it once more."""
    outdated: bool = False
    """Whether a pod that was to be deleted was gone: nothing that was planned to follow may."""
    written: Manifest | None = None
    """The job after its status was written."""
    pod: Manifest | None = None
    """The last pod that was made."""

    def __post_init__(self) -> None:
        self.began = self.clock()

    def run(self, plan: Plan) -> Outcome:
        """Do what fits into one reconcile. What else the API server says is raised: the queue tries again, with a
        backoff."""
        try:
            for action in plan.actions:
                if self.outdated:
                    raise ObserveAgain(self.settings.name_retry)
                self._do(action)
        except ObserveAgain as again:
            return Outcome(again.after)
        except PodRefused as refused:
            return Outcome(refused=str(refused))
        except Blocked as hindered:
            return Outcome(hindered=hindered)
        except QuotaRefused as over:
            return Outcome(over_quota=over.by)
        except ChargeRefused as refused:
            return Outcome(no_room=refused.by)
        except KeyLost:
            log.info("%s: lost to another worker, nothing made", self.key)
            return Outcome(plan.requeue_after)
        quiet = all(map(_is_quiet, plan.actions))
        return Outcome(plan.requeue_after, quiet=quiet, written=self.written, pod=self.pod)

    def _do(self, action: Action) -> None:
        match action:
            case WriteStatus(change, resource_version):
                self._write(change["status"], resource_version)
            case CreatePods(manifests):
                self._side_by_side(self._create_pod, manifests, fenced=True)
            case DeletePods(pods, at_once, seconds):
                # What looked unfinished to somebody who has lost the key may have finished since.
                self._side_by_side(partial(self._delete_pod, 0 if at_once else seconds), pods, fenced=True)
            case PatchPodMetadata(pods, metadata):
                self._side_by_side(partial(self._mark_pod, metadata), pods, fenced=True)
            case RaiseCharge(attempt, charge):
                self._raise_charge(attempt, charge)
            case EmitEvent():
                self._tell(action)
            case DeleteJob():
                self._delete(TORCHJOBS, self.key.name, self.key.uid)
            case _:
                self._do_beside(action)

    def _do_beside(self, action: CreateService | DeleteService | CreateObject | PatchObject | DeleteObject) -> None:
        """What is not the job and no pod of it."""
        match action:
            case CreateService(manifest):
                self._side_by_side(self._create_service, [manifest], fenced=True)
            case DeleteService(name):
                self._side_by_side(self._delete_service, [name])
            case CreateObject(resource, manifest, remedy):
                self._side_by_side(partial(self._make, resource, remedy), [manifest], fenced=True)
            case PatchObject(resource, name, change):
                self._side_by_side(partial(self._change, resource, name), [change], fenced=True)
            case DeleteObject(resource, name, uid):
                self._side_by_side(partial(self._remove, resource, name), [uid])

    def _fence(self) -> None:
        if not self.holds():
            raise KeyLost

    def _raise_charge(self, attempt: int, charge: Amounts) -> None:
        refused = self.raise_charge(attempt, charge)
        match refused:
            case "quota" | "cohort" | "pool":
                raise ChargeRefused(refused)
            case "":
                log.info("%s: charged for what its pods ask for", self.key)
            case _:  # the key is lost, or the reservation: the next look says which
                raise ObserveAgain(0.0)

    def _write(self, change: Manifest, resource_version: str) -> None:
        namespace, name = self.key.namespace, self.key.name
        patch = {"status": change}
        try:
            self.written = self.cluster.patch(
                TORCHJOBS, name, patch, namespace, subresource="status", resource_version=resource_version
            )
        except (errors.Conflict, errors.NotFound) as error:
            raise ObserveAgain(0.0) from error
        self.writes += 1
        if "phase" in change:
            log.info("%s: %s", self.key, change["phase"])

    def _side_by_side(self, work: Callable[[T], None], things: Sequence[T], *, fenced: bool = False) -> None:
        """Do it to all, some at a time; all that was begun is over when this returns or raises. What is `fenced` asks
        before each few whether the key is still ours, and before each that begins long after the last answer: this
        process may have slept between any two requests."""
        asked, left, before = 0.0, 0, len(self.made)

        def may_begin(at: int) -> None:
            nonlocal asked, left
            if before + at >= self.settings.parallel and self._spent():
                raise ObserveAgain(0.0)
            if fenced and not (left and 0 <= self.clock() - asked <= FENCE_SECONDS):
                asked, left = self.clock(), self.settings.parallel
                self._fence()
            left -= 1
            self.writes += 1

        found = ParallelRun(work, things, self.executor, may_begin).run(self.settings.parallel)
        if found:
            raise next((each for each in found if isinstance(each, PodRefused)), found[0])

    def _spent(self) -> bool:
        """Whether one more write is too many for one go, or it has taken too long."""
        return self.clock() - self.began > self.settings.most_seconds or self.writes >= self.settings.most_writes

    def _create_pod(self, manifest: Manifest) -> None:
        try:
            made = self.cluster.create(PODS, manifest, self.key.namespace)
        except errors.AlreadyExists:
            made = self._same_pod(manifest)
        except errors.Invalid as error:
            raise PodRefused(_words(manifest, error)) from error
        except errors.Forbidden as error:
            if self._is_new(PODS, manifest, error):
                raise classify_refusal(error, PODS_FORBIDDEN) from error
            made = self._same_pod(manifest)
        self.pod = made
        self._wrote(made)
        if measure.is_larger(made, manifest):
            log.info("%s: pod %s asks for more than its template", self.key, made["metadata"]["name"])
            raise ObserveAgain(0.0)

    def _wrote(self, pod: Manifest) -> None:
        version = pod["metadata"]["resourceVersion"]
        self.made.append(integers.bounded(version, 0))

    def _same_pod(self, manifest: Manifest) -> Manifest:
        """The pod that has the name already, if it is the one we wanted to make."""
        there = self._look(PODS, manifest)
        same = (labels.JOB_UID, labels.ATTEMPT, labels.RESTART)
        marks, wanted = there["metadata"]["labels"], manifest["metadata"]["labels"]
        if any(marks.get(each) != wanted[each] for each in same) or "deletionTimestamp" in there["metadata"]:
            raise ObserveAgain(self.settings.name_retry)
        return there

    def _create_service(self, manifest: Manifest) -> None:
        try:
            self.cluster.create(SERVICES, manifest, self.key.namespace)
        except (errors.Forbidden, errors.AlreadyExists) as error:
            if isinstance(error, errors.Forbidden) and self._is_new(SERVICES, manifest, error):
                raise classify_refusal(error, PODS_FORBIDDEN) from error
            there = self._look(SERVICES, manifest)["metadata"]
            if _whose(SERVICES, there) != self.key.uid:
                # Left over by an earlier job of this name, in a cluster without garbage collection or slow at it.
                self._delete(SERVICES, there["name"], there["uid"])
                raise ObserveAgain(self.settings.name_retry) from error

    def _is_new(self, resource: Resource, manifest: Manifest, error: errors.Forbidden) -> bool:
        """Whether there is no object of that name yet. ResourceQuotas are asked before it is known that there is."""
        if over_quota.parse_refusal(str(error)) is None:
            return True
        try:
            self.cluster.get(resource, manifest["metadata"]["name"], self.key.namespace)
        except errors.NotFound:
            return True
        return False

    def _look(self, resource: Resource, manifest: Manifest) -> Manifest:
        """The object that has a name we need. Hindered if it is nobody's we know."""
        name = manifest["metadata"]["name"]
        try:
            there = self.cluster.get(resource, name, self.key.namespace)
        except errors.NotFound as error:
            raise ObserveAgain(0.0) from error
        if not _whose(resource, there["metadata"]):
            raise self._taken(resource, name) from None
        return there

    def _taken(self, resource: Resource, name: str) -> Blocked:
        kind = resource.kind.lower()
        message = (
            f"the job needs a {kind} named {name}, but the one of that name in namespace {self.key.namespace} is not "
            f"torchq's: delete that {kind} or give the job another name"
        )
        return Blocked(NAME_TAKEN, NameTaken(f"{self.key}: {message}"), message)

    def _delete_pod(self, seconds: int | None, pod: PodView) -> None:
        if not self._delete(PODS, pod.name, pod.uid, grace_period_seconds=seconds):
            self.outdated = True  # whoever deleted a failed pod has counted its failure

    def _mark_pod(self, metadata: Mapping[str, Any], pod: PodView) -> None:
        try:
            change = {"metadata": {**metadata, "uid": pod.uid}}
            self._wrote(self.cluster.patch(PODS, pod.name, change, self.key.namespace))
        except (errors.NotFound, errors.Conflict):
            self.outdated = True
        except errors.Invalid as error:
            if not _is_namesake(error):
                raise
            self.outdated = True

    def _make(self, resource: Resource, remedy: str, manifest: Manifest) -> None:
        try:
            self.cluster.create(resource, manifest, self.key.namespace)
        except errors.AlreadyExists as error:
            there = self._look(resource, manifest)["metadata"]
            if _whose(resource, there) != self.key.uid:
                self._delete(resource, there["name"], there["uid"])
                raise ObserveAgain(self.settings.name_retry) from error
        except errors.NotFound as error:
            message = f"the cluster has no {resource.kind} of {resource.api_version}: {remedy or 'install it'}"
            raise Blocked(f"{resource.kind}Missing", error, message) from error
        except (errors.Forbidden, errors.Invalid) as error:
            reason = f"{resource.kind}Refused"
            if isinstance(error, errors.Invalid) or resource == RECREATE_REQUESTS:
                raise Blocked(reason, error) from error
            raise classify_refusal(error, reason) from error

    def _change(self, resource: Resource, name: str, change: Manifest) -> None:
        try:
            self.cluster.patch(resource, name, change, self.key.namespace)
        except (errors.NotFound, errors.Conflict) as error:
            raise ObserveAgain(self.settings.name_retry) from error
        except errors.Invalid as error:
            if not _is_namesake(error):
                raise
            raise ObserveAgain(self.settings.name_retry) from error

    def _remove(self, resource: Resource, name: str, uid: str) -> None:
        self._delete(resource, name, uid)

    def _tell(self, event: EmitEvent) -> None:
        """An event is a courtesy: one that cannot be told now is not told."""
        self.writes += 1
        try:
            self.cluster.create(EVENTS, events.manifest(self.key, event, self.clock()), self.key.namespace)
        except errors.ClusterError as error:
            log.debug("%s: no event %s: %s", self.key, event.reason, error)

    def _delete_service(self, name: str) -> None:
        try:
            there = self.cluster.get(SERVICES, name, self.key.namespace)["metadata"]
        except errors.NotFound:
            return
        if _whose(SERVICES, there) == self.key.uid:
            self._delete(SERVICES, name, there["uid"])

    def _delete(self, resource: Resource, name: str, uid: str, *, grace_period_seconds: int | None = None) -> bool:
        """Whether it was there."""
        try:
            self.cluster.delete(resource, name, self.key.namespace, uid=uid, grace_period_seconds=grace_period_seconds)
        except (errors.NotFound, errors.Conflict):
            log.debug("%s: %s %s was gone already", self.key, resource.kind, name)
            return False
        return True


def _is_quiet(action: Action) -> bool:
    """A plan makes pods in one action, if at all."""
    match action:
        case WriteStatus() | EmitEvent():
            return True
        case CreatePods(manifests):
            return len(manifests) == 1
    return False


def _whose(resource: Resource, metadata: Manifest) -> str:
    """The uid of the job that an object is for; empty: of none, whatever its labels say."""
    return recreate_request.job_uid(metadata) if resource == RECREATE_REQUESTS else owners.job_uid(metadata)


def _is_namesake(error: errors.Invalid) -> bool:
    """Whether a patch was refused because another object has the name by now: a uid cannot be changed."""
    return any(each.field == "metadata.uid" for each in error.causes)


def _words(manifest: Manifest, error: errors.Invalid) -> str:
    causes = "; ".join(f"{each.field}: {each.message}" for each in error.causes)
    return f"pod {manifest['metadata']['name']}: {causes or error}"
