"""The next step of the scale requests of one job.

One rule: pure. One request of a job is under way at a time, the oldest first. Its size is recorded in its status before
the job's numTasks is changed, so that any worker can go on, and whoever changes numTasks in the meantime wins.

    phase      a worker
    (none)     makes the job the owner of the request; the request fails if it does not fit
    Pending    waits until older requests are over, or until the job exists; for that, no longer than its timeout
    Admitted   changes numTasks; the job waits for room, or names the workers to remove
    Scaling    waits for the added workers to run, or for the removed ones to be gone and the others to run
    Succeeded  deletes the request after its time to live
    Failed     likewise

A ScaleOut that does not complete in time, or is deleted, is rolled back before it fails: numTasks is what it was, and
the workers that it added are removed first. A finalizer keeps a deleted one until then. A ScaleIn is not rolled back.

The wish of a request is in its status; its progress shows in the job. In a later generation of the job than the
recorded one, numTasks was changed: by a worker to the number that the request wants, or by another client. A request
that is over never changes again. A phase is a condition, too, so that programs can wait for it; a condition's time
moves only when its status changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from crds import excerpts, labels
from crds.scale_request import RequestPhase, ScaleStatus
from crds.torchjob import conditions
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import progress
from reconcilers.plan.elastic import current_request, request_judgement
from reconcilers.plan.elastic.request_judgement import Misfit
from reconcilers.plan.elastic.victims import Workers
from reconcilers.plan.moment import Moment
from reconcilers.values import (
    Action,
    DeleteObject,
    EmitEvent,
    InvalidJob,
    InvalidSize,
    PatchRequest,
    SetWorkers,
    earliest,
)
from reconcilers.views.scale_request_view import RequestView

MOST_PODS = 1_000
LONGEST_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """The actions for the requests of a job, in order; the job is observed again after them."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds after which the actions may change although no event arrives."""


def change_phase(
    request: RequestView, phase: RequestPhase, message: str, now: datetime, reason: str = "", **fields: Any
) -> ScaleStatus:
    """Return the status of a request that enters a phase; `fields` are further fields that change with it."""
    found = request.status.conditions
    if phase in ("Succeeded", "Failed"):
        for kind in ("Admitted", "Scaling"):
            if conditions.find(found, kind) is not None:
                found = conditions.set_condition(found, kind, False, reason or phase, message, now, 0)
        fields["completion_time"] = now
    if phase != "Pending":
        found = conditions.set_condition(found, phase, True, reason or phase, message, now, 0)
    text = excerpts.excerpt(message, LONGEST_MESSAGE)
    update = {"phase": phase, "reason": reason, "message": text, "conditions": found, **fields}
    return request.status.model_copy(update=update)


def write(request: RequestView, after: ScaleStatus) -> tuple[PatchRequest, ...]:
    """Return the write of a status; nothing if it is written already."""
    before_fields, after_fields = request.status.manifest(), after.manifest()
    names = before_fields.keys() | after_fields.keys()
    change = {name: after_fields.get(name) for name in names if before_fields.get(name) != after_fields.get(name)}
    return (PatchRequest(request, {"status": change}, "status"),) if change else ()


def merge(plans: Iterable[RequestPlan]) -> RequestPlan:
    """Return several plans as one plan."""
    parts = tuple(plans)
    actions = tuple(action for part in parts for action in part.actions)
    return RequestPlan(actions, 0.0 if actions else earliest(part.requeue_after for part in parts))


def fail(request: RequestView, misfit: Misfit, now: datetime, job: TorchJob | InvalidJob | None = None) -> RequestPlan:
    """Return the plan that ends a request; an Event reports the end to the owner of its job."""
    after = change_phase(request, "Failed", misfit.message, now, misfit.reason)
    event = EmitEvent("ScaleRequestFailed", f"{request.label}: {misfit.reason}: {misfit.message}", warning=True)
    return RequestPlan((*write(request, after), *((event,) if job is not None else ())))


@dataclass(frozen=True, slots=True)
class Following:
    """A request that has begun, with its job."""

    request: RequestView
    job: TorchJob
    at: Moment

    @property
    def start(self) -> datetime:
        """The time at which the request began."""
        return self.request.status.start_time or self.at.now

    @property
    def remaining(self) -> float:
        """The seconds that the request may still take."""
        return (self.start + timedelta(seconds=self.request.timeout) - self.at.now).total_seconds()

    @property
    def size(self) -> int:
        """The number of workers that the job should request now."""
        status = self.request.status
        return (status.from_workers if current_request.is_rolling_back(self.request) else status.to) or 0

    @property
    def granted(self) -> int | None:
        """The number of workers that the job has been granted; None if it is not admitted."""
        return self.job.admission.workers if self.job.admission is not None else None

    @property
    def paid(self) -> int | None:
        """The number of those workers that are not idle growth; None if the job is not admitted."""
        return None if self.granted is None or self.job.admission is None else self.granted - self.job.admission.idle

    @property
    def victims(self) -> tuple[str, ...]:
        """The names of the workers that are being removed."""
        return self.job.status.victims

    @property
    def running(self) -> int:
        """The number of granted workers that run, or have succeeded."""
        own = () if self.at.grant is None else self.at.grant.own_pods(self.at.observation.pods)
        workers = (pod for pod in own if pod.task == WORKER.lower() and not progress.is_outdated(self.job, pod))
        return sum((pod.running and not pod.gated and not pod.deleting) or pod.phase == "Succeeded" for pod in workers)

    @property
    def all_run(self) -> bool:
        """Whether all granted workers run. Workers whose stage has not begun have no pods, and none are expected."""
        begun = progress.has_begun(self.job, WORKER)
        return not begun or not self.at.settings.make_pods or self.running >= (self.granted or 0)

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the workers that the job has been granted since the request began."""
        return current_request.added_workers(self.request, self.job)[:MOST_PODS]

    def plan(self) -> RequestPlan:
        """Return the next actions for the request."""
        wish, job = self.job.spec.worker_count, self.job
        if job.is_finished:
            return self.fail("JobFinished", f"job {self.request.job} has {job.status.phase.lower()}")
        if (refused := self.at.observation.met(InvalidSize)) is not None:
            return self.fail("Refused", refused.message)
        if wish == self.size:
            return self._finish_rollback() if current_request.is_rolling_back(self.request) else self._go_on()
        if job.metadata.generation != self.request.status.job_generation:
            return self.fail("Superseded", f"the job was changed in the meantime, and requests {wish} workers now")
        if self.request.deleting and not current_request.is_rolling_back(self.request):
            return self.fail("Deleted", "the request was deleted before it began")
        return RequestPlan((SetWorkers(self.size, job.metadata.resource_version),))

    def fail(self, reason: str, message: str) -> RequestPlan:
        """Return the plan that ends the request without success."""
        return fail(self.request, Misfit(reason, message), self.at.now, self.job)

    def _go_on(self) -> RequestPlan:
        """Return the plan for a request whose size the job requests."""
        request, status = self.request, self.request.status
        if self._is_complete():
            seconds = (self.at.now - self.start).total_seconds()
            message = f"from {status.from_workers} to {status.to} workers in {seconds:.0f} s"
            after = change_phase(request, "Succeeded", message, self.at.now)
            return RequestPlan(write(request, after))
        if cause := self._cause_to_stop():
            return self._roll_back(cause) if request.adds else self.fail(cause.reason, cause.message)
        if status.phase == "Admitted" and (pods := self._moved()):
            after = change_phase(request, "Scaling", status.message, self.at.now, pods=pods[:MOST_PODS])
            return RequestPlan(write(request, after))
        return RequestPlan(requeue_after=self.remaining)

    def _is_complete(self) -> bool:
        request, wanted = self.request, self.request.status.to or 0
        if self.granted is None:  # a job that had no workers either when the request began has nothing to wait for
            return not request.adds or request.status.indexes is None
        if request.adds:
            return self.paid == wanted and self.job.status.scaling is None and self.all_run
        has_named = request.names is None or request.status.phase == "Scaling"
        return has_named and self.granted <= self._most(wanted) and not self.victims and self.all_run

    def _most(self, wanted: int) -> int:
        """Return how many workers the job may have when its spec requests this number: idle growth stays."""
        return max(wanted, self.job.wanted_workers)

    def _moved(self) -> tuple[str, ...]:
        """Return the names of the workers that are being added or removed."""
        if self.request.adds:
            return self.added if self.granted == self.request.status.to else ()
        return self.victims

    def _cause_to_stop(self) -> Misfit | None:
        """Return why the request ends before it is complete; None if the request continues."""
        if self.request.deleting:
            return Misfit("Deleted", "the request was deleted")
        if self.job.spec.suspend and self.request.adds:
            return Misfit("JobSuspended", f"job {self.request.job} was suspended")
        if self.remaining > 0:
            return None
        wanted, seconds = self.request.status.to, self.request.timeout
        return Misfit("TimedOut", f"{self.running} of {wanted} workers run after {seconds} s")

    def _roll_back(self, cause: Misfit) -> RequestPlan:
        """Record that the request is undone, and the workers that it has added, before anything is undone."""
        update = {
            "reason": cause.reason,
            "message": cause.message,
            "job_generation": self.job.metadata.generation,
            "pods": self.added,
        }
        return RequestPlan(write(self.request, self.request.status.model_copy(update=update)))

    def _finish_rollback(self) -> RequestPlan:
        """Return the failure of a request once the workers that it has added are gone or named as victims."""
        if self.granted is not None and self.granted - len(self.victims) > self._most(self.size):
            return RequestPlan()
        return self.fail(self.request.status.reason, self.request.status.message)


def plan_requests(at: Moment) -> RequestPlan:
    """Return the next actions for the requests of a job."""
    job, requests, now = at.observation.job, at.observation.requests, at.now
    ended = [request for request in requests if request.is_over or _is_abandoned(request, job is not None)]
    left = [request for request in requests if request not in ended and (request.has_begun or not request.deleting)]
    found = [_await_job(request, at) for request in left] if job is None else [_step(job, left, at)]
    return merge((*(_clean_up(request, now) for request in ended), *found))


def _is_abandoned(request: RequestView, has_job: bool) -> bool:
    """Return whether a request is kept by the finalizer alone: it was deleted before it began, or its job was
    deleted."""
    return request.is_held and (not has_job or (request.deleting and not request.has_begun))


def _clean_up(request: RequestView, now: datetime) -> RequestPlan:
    """Return the plan for a request for which nothing is left to do but its deletion."""
    if request.is_held:
        others = [name for name in request.finalizers if name != labels.SCALE_OUT]
        return RequestPlan((PatchRequest(request, {"metadata": {"finalizers": others or None}}),))
    if request.deleting or not request.is_over:
        return RequestPlan()
    ended = request.status.completion_time or request.created
    remaining = request.time_to_live - (now - ended).total_seconds()
    if remaining > 0:
        return RequestPlan(requeue_after=remaining)
    return RequestPlan((DeleteObject(request.resource, request.name, request.uid),))


def _await_job(request: RequestView, at: Moment) -> RequestPlan:
    """Return the plan for a request whose job does not exist."""
    now = at.now
    if request.uid != at.observation.key.uid:
        return RequestPlan()
    if misfit := request_judgement.misfit_of(request):
        return fail(request, misfit, now)
    remaining = request.timeout - (now - request.created).total_seconds()
    if remaining <= 0:
        message = f"no job {request.job} was there within {request.timeout} s"
        return fail(request, Misfit("UnknownJob", message), now)
    message = f"there is no job {request.job}: it is gone, or is yet to come"
    return RequestPlan(write(request, _pending(request, message, now)), remaining)


def _pending(request: RequestView, message: str, now: datetime) -> ScaleStatus:
    return change_phase(request, "Pending", message, now)


def _step(job: TorchJob | InvalidJob, requests: list[RequestView], at: Moment) -> RequestPlan:
    """Return the plan for the requests of an existing job that are not over."""
    now = at.now
    misfits = [(request, request_judgement.misfit_of(request)) for request in requests]
    failed = [_refuse(request, wrong, now, job) for request, wrong in misfits if wrong is not None]
    if failed:
        return merge(failed)
    current = next((request for request in requests if request.has_begun), None)
    if current is not None and isinstance(job, TorchJob):
        return merge((Following(current, job, at).plan(), *_wait_for(current, job, requests, now)))
    return _begin(requests[0], job, at) if requests else RequestPlan()


def _refuse(request: RequestView, misfit: Misfit, now: datetime, job: TorchJob | InvalidJob) -> RequestPlan:
    """Return the plan that ends a request that does not fit its job. The request is deleted with the job, too."""
    if isinstance(job, TorchJob) and job.metadata.uid not in request.owner_uids:
        return RequestPlan((_adopt(request, job),))
    return fail(request, misfit, now, job)


def _wait_for(current: RequestView, job: TorchJob, requests: list[RequestView], now: datetime) -> list[RequestPlan]:
    """Return the plans for the requests that wait for another request."""
    plans: list[RequestPlan] = []
    for request in requests:
        if request is current:
            continue
        if job.metadata.uid not in request.owner_uids:
            plans.append(RequestPlan((_adopt(request, job),)))
        elif not request.status.phase:
            after = _pending(request, f"waits for {current.label}", now)
            plans.append(RequestPlan(write(request, after)))
    return plans


def _adopt(request: RequestView, job: TorchJob, *, hold: bool = False) -> PatchRequest:
    """Make the job an owner of a request, so that the request is deleted with it; `hold` adds the finalizer."""
    reference = {name: job.owner[name] for name in ("apiVersion", "kind", "name", "uid")}
    owners = [owner for owner in request.owners if owner.get("uid") != job.metadata.uid]
    metadata: dict[str, Any] = {"ownerReferences": [*owners, reference]}
    if hold:
        metadata["finalizers"] = [*request.finalizers, labels.SCALE_OUT]
    return PatchRequest(request, {"metadata": metadata})


def _begin(request: RequestView, job: TorchJob | InvalidJob, at: Moment) -> RequestPlan:
    """Return the plan for the request whose turn has come."""
    workers, now = _workers(at), at.now
    wrong = request_judgement.misfit(request, job, workers)
    if wrong is not None or not isinstance(job, TorchJob):
        return _refuse(request, wrong, now, job) if wrong is not None else RequestPlan()
    if job.status.victims:
        return RequestPlan()  # the workers that are being removed are neither here nor gone
    if job.metadata.uid not in request.owner_uids or (request.adds and not request.is_held):
        return RequestPlan((_adopt(request, job, hold=request.adds and not request.is_held),))
    wish, to = job.spec.worker_count, request_judgement.target(request, job)
    after = change_phase(
        request,
        "Admitted",
        f"from {wish} to {to} workers",
        now,
        from_workers=wish,
        to=to,
        job_generation=job.metadata.generation,
        indexes=_granted(job),
        start_time=now,
    )
    return RequestPlan(write(request, after))


def _granted(job: TorchJob) -> str | None:
    """Return the indexes of the workers that the job has been granted; None if the job has no grant."""
    if job.admission is None:
        return None
    return job.admission.indexes or f"0-{(job.admission.workers or job.spec.worker_count) - 1}"


def _workers(at: Moment) -> Workers | None:
    """Return the workers that the job has been granted; None if it is not admitted."""
    granted, dead = at.grant, at.observation.dead_nodes
    if granted is None:
        return None
    pods = {pod.name: pod for pod in granted.own_pods(at.observation.pods)}
    return Workers(job=granted.job, members=granted.members, pods=pods, leaving_nodes=dead)
