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
"""

from datetime import datetime
from typing import Any

from crds import labels
from crds.scale_request import ScaleStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.scale_requests import judgement, request_status
from reconcilers.plan.scale_requests.following import Following
from reconcilers.plan.scale_requests.judgement import Misfit
from reconcilers.plan.scale_requests.request_status import RequestPlan, fail, merge
from reconcilers.plan.victims import Workers
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeleteObject, InvalidJob, Observation, PatchRequest
from reconcilers.views.scale_request_view import RequestView


def plan_requests(observation: Observation, settings: ReconcileSettings, now: datetime) -> RequestPlan:
    """Return the next actions for the requests of a job."""
    job, requests = observation.job, observation.requests
    ended = [request for request in requests if request.is_over or _is_abandoned(request, job is not None)]
    left = [request for request in requests if request not in ended and (request.has_begun or not request.deleting)]
    if job is None:
        found = [_await_job(request, observation, now) for request in left]
    else:
        found = [_step(job, left, observation, settings, now)]
    return merge((*(_clean_up(request, now) for request in ended), *found))


def _is_abandoned(request: RequestView, has_job: bool) -> bool:
    """Return whether a request is kept by the finalizer alone: it was deleted before it began, or its job was."""
    return request.is_held and (not has_job or (request.deleting and not request.has_begun))


def _clean_up(request: RequestView, now: datetime) -> RequestPlan:
    """Return the plan for a request for which nothing is left to do but its deletion."""
    if request.is_held:
        return RequestPlan((_let_go(request),))
    if request.deleting or not request.is_over:
        return RequestPlan()
    ended = request.status.completion_time or request.created
    remaining = request.time_to_live - (now - ended).total_seconds()
    if remaining > 0:
        return RequestPlan(requeue_after=remaining)
    return RequestPlan((DeleteObject(request.resource, request.name, request.uid),))


def _let_go(request: RequestView) -> PatchRequest:
    others = [name for name in request.finalizers if name != labels.SCALE_OUT]
    return PatchRequest(request, {"metadata": {"finalizers": others or None}})


def _await_job(request: RequestView, observation: Observation, now: datetime) -> RequestPlan:
    """Return the plan for a request whose job does not exist."""
    if request.uid != observation.key.uid:
        return RequestPlan()
    if misfit := judgement.misfit_of(request):
        return fail(request, misfit, now)
    remaining = request.timeout - (now - request.created).total_seconds()
    if remaining <= 0:
        message = f"no job {request.job} was there within {request.timeout} s"
        return fail(request, Misfit("UnknownJob", message), now)
    message = f"there is no job {request.job}: it is gone, or is yet to come"
    return RequestPlan(request_status.write(request, _pending(request, message, now)), remaining)


def _pending(request: RequestView, message: str, now: datetime) -> ScaleStatus:
    return request_status.change_phase(request, "Pending", message, now)


def _step(
    job: TorchJob | InvalidJob,
    requests: list[RequestView],
    observation: Observation,
    settings: ReconcileSettings,
    now: datetime,
) -> RequestPlan:
    """Return the plan for the requests of an existing job that are not over."""
    misfits = [(request, judgement.misfit_of(request)) for request in requests]
    failed = [_refuse(request, wrong, now, job) for request, wrong in misfits if wrong is not None]
    if failed:
        return merge(failed)
    current = next((request for request in requests if request.has_begun), None)
    if current is not None and isinstance(job, TorchJob):
        following = Following(current, job, observation, settings, now)
        return merge((following.plan(), *_wait_for(current, job, requests, now)))
    return _begin(requests[0], job, observation, now) if requests else RequestPlan()


def _refuse(request: RequestView, misfit: Misfit, now: datetime, job: TorchJob | InvalidJob) -> RequestPlan:
    """Return the plan that ends a request that does not fit its job. It is deleted with the job, too."""
    if isinstance(job, TorchJob) and job.metadata.uid not in request.owner_uids:
        return RequestPlan((_adopt(request, job),))
    return fail(request, misfit, now, job)


def _wait_for(current: RequestView, job: TorchJob, requests: list[RequestView], now: datetime) -> list[RequestPlan]:
    """Return the plans for the requests that wait for another one."""
    plans: list[RequestPlan] = []
    for request in requests:
        if request is current:
            continue
        if job.metadata.uid not in request.owner_uids:
            plans.append(RequestPlan((_adopt(request, job),)))
        elif not request.status.phase:
            after = _pending(request, f"waits for {current.label}", now)
            plans.append(RequestPlan(request_status.write(request, after)))
    return plans


def _adopt(request: RequestView, job: TorchJob, *, hold: bool = False) -> PatchRequest:
    """Make the job an owner of a request, so that the request is deleted with it; `hold` adds the finalizer."""
    reference = {name: job.owner[name] for name in ("apiVersion", "kind", "name", "uid")}
    owners = [owner for owner in request.owners if owner.get("uid") != job.metadata.uid]
    metadata: dict[str, Any] = {"ownerReferences": [*owners, reference]}
    if hold:
        metadata["finalizers"] = [*request.finalizers, labels.SCALE_OUT]
    return PatchRequest(request, {"metadata": metadata})


def _begin(request: RequestView, job: TorchJob | InvalidJob, observation: Observation, now: datetime) -> RequestPlan:
    """Return the plan for the request whose turn has come."""
    workers = _workers(job, observation) if isinstance(job, TorchJob) else None
    wrong = judgement.misfit(request, job, workers)
    if wrong is not None or not isinstance(job, TorchJob):
        return _refuse(request, wrong, now, job) if wrong is not None else RequestPlan()
    if job.status.victims:
        return RequestPlan()  # the workers that are being removed are neither here nor gone
    if job.metadata.uid not in request.owner_uids or (request.adds and not request.is_held):
        return RequestPlan((_adopt(request, job, hold=request.adds and not request.is_held),))
    wish, to = job.spec.worker_count, judgement.target(request, job)
    after = request_status.change_phase(
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
    return RequestPlan(request_status.write(request, after))


def _granted(job: TorchJob) -> str | None:
    """Return the indexes of the workers that the job has been granted; None if it has none."""
    if job.admission is None:
        return None
    return job.admission.indexes or f"0-{(job.admission.workers or job.spec.worker_count) - 1}"


def _workers(job: TorchJob, observation: Observation) -> Workers | None:
    """Return the workers that the job has been granted; None if it is not admitted."""
    if job.admission is None:
        return None
    granted = Grant(job, job.admission)
    pods = {pod.name: pod for pod in granted.own_pods(observation.pods)}
    return Workers(job=granted.job, members=granted.members, pods=pods, leaving_nodes=observation.dead_nodes)
