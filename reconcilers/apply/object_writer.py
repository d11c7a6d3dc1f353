"""The writes of one plan to objects other than the job and its pods.

One rule: each write may find its work done already. An object of the same name that belongs to an earlier job is
deleted, and the key is observed again. An object that is not torchq's blocks the job. The exceptions that end a plan
carry the facts that the next observation of the job has to include.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from crds import owners
from crds.api_resources import EVENTS, PODS, RECREATE_REQUESTS, SERVICES, TORCHJOBS, Resource
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.apply import events
from reconcilers.errors import NameTaken
from reconcilers.plan import over_quota
from reconcilers.plan.status import NAME_TAKEN, NOT_CREATED, PODS_FORBIDDEN
from reconcilers.values import Blocker, CreateObject, EmitEvent, InvalidSize, Obstacle, PatchRequest
from reconcilers.views import recreate_request

FAILURES = (errors.Unreachable, errors.TooManyRequests, errors.ServerError)
"""The errors of a create that may succeed later: nothing is wrong with the object or with the account's rights."""
log = logging.getLogger(__name__)


class ObserveAgain(Exception):
    """The plan is outdated, or too long for one reconcile."""

    def __init__(self, after: float) -> None:
        super().__init__(after)
        self.after = after


class KeyLost(Exception):
    """Another worker has the key."""


class Obstructed(Exception):
    """The next plan has to know an obstacle."""

    def __init__(self, obstacle: Obstacle, error: errors.ClusterError | NameTaken | None = None) -> None:
        """`error` is the cause of a Blocker; other obstacles are reported without a cause."""
        super().__init__(obstacle)
        self.obstacle = obstacle
        self.error = error


def blocked(
    reason: str, error: errors.ClusterError | NameTaken, message: str = "", *, passing: bool = False
) -> Obstructed:
    """Return the exception for an object of the job that cannot be created now."""
    return Obstructed(Blocker(reason, message or str(error), passing), error)


def classify_refusal(error: errors.Forbidden, reason: str) -> Obstructed:
    """Return the exception for a refusal: because of a ResourceQuota, or for a reason that the owner has to resolve."""
    quota = over_quota.parse_refusal(str(error))
    return blocked(reason, error) if quota is None else Obstructed(quota)


def not_created(resource: Resource, name: str, error: errors.ClusterError) -> Obstructed:
    """Return the exception for a failure in FAILURES."""
    kind = resource.kind
    return blocked(f"{kind}{NOT_CREATED}", error, f"{kind} {name}: {error}", passing=True)


@dataclass(frozen=True, slots=True)
class ObjectWriter:
    """Writes objects of one job."""

    cluster: Cluster
    key: JobKey
    name_retry: float
    """Seconds after which the key is observed again while an older object holds a name."""
    requests: Resource = RECREATE_REQUESTS
    """The version in which requests to recreate containers are served; plans name the newest."""

    def make(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Create and return an object. Raises Obstructed if the API server fails, else the error of its refusal."""
        try:
            return self.cluster.create(resource, {**manifest, "apiVersion": resource.api_version}, self.key.namespace)
        except FAILURES as error:
            raise not_created(resource, manifest["metadata"]["name"], error) from error

    def create_service(self, manifest: Manifest) -> None:
        """Create a service, unless the job has it already."""
        try:
            self.make(SERVICES, manifest)
        except (errors.Forbidden, errors.AlreadyExists) as error:
            if isinstance(error, errors.Forbidden) and self.is_new(SERVICES, manifest, error):
                raise classify_refusal(error, PODS_FORBIDDEN) from error
            self._replace_leftover(SERVICES, manifest, error)

    def delete_service(self, name: str) -> None:
        """Delete a service if it belongs to the job."""
        try:
            metadata = self.cluster.get(SERVICES, name, self.key.namespace)["metadata"]
        except errors.NotFound:
            return
        if _owning_job(SERVICES, metadata) == self.key.uid:
            self.delete(SERVICES, name, metadata["uid"])

    def create(self, action: CreateObject) -> None:
        """Create an object, unless the job has it already. Raises Obstructed if the object cannot be created."""
        resource = self.requests if action.resource == RECREATE_REQUESTS else action.resource
        try:
            self.make(resource, action.manifest)
        except errors.AlreadyExists as error:
            self._replace_leftover(resource, action.manifest, error)
            if action.correction:
                self.patch(resource, action.manifest["metadata"]["name"], {"spec": action.correction})
        except errors.NotFound as error:
            if action.optional:
                return
            message = f"the cluster has no {resource.kind} of {resource.api_version}: {action.remedy or 'install it'}"
            raise blocked(f"{resource.kind}Missing", error, message) from error
        except (errors.Forbidden, errors.Invalid) as error:
            reason = f"{resource.kind}Refused"
            if isinstance(error, errors.Invalid) or resource.is_version_of(RECREATE_REQUESTS):
                raise blocked(reason, error) from error
            raise classify_refusal(error, reason) from error

    def patch(self, resource: Resource, name: str, change: Manifest) -> None:
        """Merge a change into an object. Raises ObserveAgain if the object was deleted or replaced."""
        try:
            self.cluster.patch(resource, name, change, self.key.namespace)
        except (errors.NotFound, errors.Conflict) as error:
            raise ObserveAgain(self.name_retry) from error
        except errors.Invalid as error:
            if not is_namesake(error):
                raise
            raise ObserveAgain(self.name_retry) from error

    def annotate_job(self, annotations: Mapping[str, str]) -> None:
        """Merge annotations into the job, if this account may patch jobs."""
        change = {"metadata": {"annotations": dict(annotations), "uid": self.key.uid}}
        try:
            self.patch(TORCHJOBS, self.key.name, change)
        except errors.Forbidden as error:
            log.info("%s: the job is not asked to save: %s", self.key, error)

    def patch_request(self, action: PatchRequest) -> Manifest:
        """Change a scale request. Raises ObserveAgain if the object has changed since it was observed, or was
        deleted."""
        request = action.request
        try:
            return self.cluster.patch(
                request.resource,
                request.name,
                action.change,
                request.namespace,
                subresource=action.subresource,
                resource_version=request.resource_version,
            )
        except (errors.NotFound, errors.Conflict) as error:
            raise ObserveAgain(self.name_retry) from error

    def set_workers(self, workers: int, resource_version: str) -> None:
        """Change the number of workers that the job requests. Raises Obstructed if the API server refuses it, and
        ObserveAgain if the job has changed since it was observed."""
        change = {"spec": {"replicas": workers}}
        try:
            self.cluster.patch(
                TORCHJOBS,
                self.key.name,
                change,
                self.key.namespace,
                subresource="scale",
                resource_version=resource_version,
            )
        except errors.Invalid as error:
            causes = "; ".join(f"{cause.field}: {cause.message}" for cause in error.causes)
            raise Obstructed(InvalidSize(causes or str(error))) from error
        except (errors.NotFound, errors.Conflict) as error:
            raise ObserveAgain(0.0) from error

    def delete(self, resource: Resource, name: str, uid: str, *, grace_period_seconds: int | None = None) -> bool:
        """Delete exactly this object; return whether it existed."""
        try:
            self.cluster.delete(resource, name, self.key.namespace, uid=uid, grace_period_seconds=grace_period_seconds)
        except (errors.NotFound, errors.Conflict):
            log.debug("%s: %s %s no longer existed", self.key, resource.kind, name)
            return False
        return True

    def delete_request(self, name: str, uid: str) -> None:
        """Delete a request to recreate containers. If the deletion fails, the request stays until its pod is gone, and
        nothing else waits for it.
        """
        try:
            self.delete(self.requests, name, uid)
        except errors.ClusterError as error:
            log.info("%s: %s %s is not deleted: %s", self.key, self.requests.kind, name, error)

    def emit_event(self, event: EmitEvent, now: float) -> None:
        """Create an Event. If the write fails, the Event is lost, because nothing depends on it."""
        try:
            self.cluster.create(EVENTS, events.manifest(self.key, event, now), self.key.namespace)
        except errors.ClusterError as error:
            log.debug("%s: the Event %s could not be created: %s", self.key, event.reason, error)

    def existing(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Return the object that already has the name of a new object. Raises Obstructed if the object belongs to no
        TorchJob.

        A pod of this job whose labels were changed is deleted: no watch of the job's pods shows it.
        """
        name = manifest["metadata"]["name"]
        try:
            current = self.cluster.get(resource, name, self.key.namespace)
        except errors.NotFound as error:
            raise ObserveAgain(0.0) from error
        metadata = current["metadata"]
        if resource == PODS and owners.is_disguised(metadata, self.key.uid):
            if "deletionTimestamp" not in metadata:
                self.delete(resource, name, metadata["uid"])
            raise ObserveAgain(self.name_retry)
        if not _owning_job(resource, metadata):
            raise self._name_taken(resource, name) from None
        return current

    def is_new(self, resource: Resource, manifest: Manifest, error: errors.Forbidden) -> bool:
        """Return whether no object has the manifest's name yet.

        A refusal by a ResourceQuota does not show whether an object has the name, because the API server checks quotas
        before it looks for the name.
        """
        if over_quota.parse_refusal(str(error)) is None:
            return True
        try:
            self.cluster.get(resource, manifest["metadata"]["name"], self.key.namespace)
        except errors.NotFound:
            return True
        return False

    def _replace_leftover(self, resource: Resource, manifest: Manifest, error: errors.ClusterError) -> None:
        """Delete the object of this name if another job owns it.

        An earlier job of the same name leaves it behind in a cluster whose garbage collection is slow or missing.
        """
        metadata = self.existing(resource, manifest)["metadata"]
        if _owning_job(resource, metadata) != self.key.uid:
            self.delete(resource, metadata["name"], metadata["uid"])
            raise ObserveAgain(self.name_retry) from error

    def _name_taken(self, resource: Resource, name: str) -> Obstructed:
        kind = resource.kind.lower()
        message = (
            f"the job needs a {kind} named {name}, but the one of that name in namespace {self.key.namespace} is not "
            f"torchq's: delete that {kind} or give the job another name"
        )
        return blocked(NAME_TAKEN, NameTaken(f"{self.key}: {message}"), message)


def is_namesake(error: errors.Invalid) -> bool:
    """Return whether a patch was refused because another object has the name by now: a uid cannot be changed."""
    return any(cause.field == "metadata.uid" for cause in error.causes)


def _owning_job(resource: Resource, metadata: Manifest) -> str:
    """Return the uid of the job that an object belongs to; empty if the object belongs to no job, whatever its labels
    say.
    """
    is_request = resource.is_version_of(RECREATE_REQUESTS)
    return recreate_request.job_uid(metadata) if is_request else owners.job_uid(metadata)
