"""Whether a scale request fits its job.

One rule: pure. A request that does not fit fails at once, with a reason and a sentence, and nothing is touched.

    reason           the request fails because
    InvalidRequest   it cannot be read
    InvalidCount     it adds or removes no workers, or says both a number and names
    InvalidPods      it names no pods, a pod twice, one that the job does not have, or one that is never removed
    JobInvalid       the job cannot run
    JobFinished      the job has succeeded or failed
    JobSuspended     its owner has suspended the job
    NotElastic       the job has no torchElasticPolicy or no Worker
    EveryWorker      no worker would be left
    BelowMinimum     the job would have fewer workers than numMinReplicas or minMembers.Worker
    AboveMaximum     the job would have more workers than numMaxReplicas
    OffStep          the size is not numMinReplicas and a multiple of replicaStep
"""

from dataclasses import dataclass

from crds.torchjob.tasks import MOST_TASKS, WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.elastic.victims import Workers
from reconcilers.values import InvalidJob
from reconcilers.views.scale_request_view import RequestView


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a request fails."""

    reason: str
    message: str


def misfit_of(request: RequestView) -> Misfit | None:
    """Return why a request fits no job; None if the request may fit a job."""
    if request.problem:
        return Misfit("InvalidRequest", request.problem)
    if request.names is not None and request.count is not None:
        return Misfit("InvalidCount", "the request says both a number and names: say one of them")
    if request.names is None and (request.count is None or request.count < 1):
        said = "no number" if request.count is None else str(request.count)
        other = "" if request.adds else ", or names of pods"
        return Misfit("InvalidCount", f"the request says {said}: say a number of at least 1{other}")
    return None


def misfit(request: RequestView, job: TorchJob | InvalidJob, workers: Workers | None) -> Misfit | None:
    """Return why a request does not fit its job in its present state; None if the request fits. `workers` are the
    workers of the job; None if the job is not admitted.
    """
    name = request.job
    if isinstance(job, InvalidJob):
        return Misfit("JobInvalid", f"job {name} cannot run: {'; '.join(map(str, job.problems))}")
    if job.is_finished:
        return Misfit("JobFinished", f"job {name} has {job.status.phase.lower()}")
    if job.spec.suspend:
        return Misfit("JobSuspended", f"job {name} is suspended")
    if not job.spec.is_elastic:
        return Misfit("NotElastic", f"job {name} is not elastic: it has no spec.torchElasticPolicy, or no Worker")
    return _misfit_of_pods(request, job, workers) or _misfit_of_size(job, target(request, job))


def target(request: RequestView, job: TorchJob) -> int:
    """Return the number of workers that the job would request."""
    count = len(request.names) if request.names is not None else request.count or 0
    return job.spec.worker_count + (count if request.adds else -count)


def _misfit_of_pods(request: RequestView, job: TorchJob, workers: Workers | None) -> Misfit | None:
    """Return why the workers to remove cannot be removed."""
    if request.adds:
        return None
    if request.names is None:
        return _misfit_of_count(request, job, workers)
    if workers is None:
        return Misfit("InvalidPods", f"job {request.job} has no pods: it holds no room")
    refusal = workers.refusal(request.names)
    return Misfit("InvalidPods", refusal) if refusal else None


def _misfit_of_count(request: RequestView, job: TorchJob, workers: Workers | None) -> Misfit | None:
    """Return why this number of workers cannot be removed: some workers are never removed. How many the job keeps at
    least is another matter (`_misfit_of_size`).
    """
    to = target(request, job)
    if workers is None or to < 1:
        return None
    surplus = sum(member.task_type == WORKER for member in workers.members.values()) - to
    if len(workers.choose(surplus)) >= surplus:
        return None
    return Misfit("InvalidPods", f"{surplus} workers cannot be removed: those of a critical task stay")


def _misfit_of_size(job: TorchJob, to: int) -> Misfit | None:
    policy = job.spec.torch_elastic_policy
    least, most, step = 1, MOST_TASKS, 1
    if policy is not None:
        least, most, step = policy.num_min_replicas or 1, policy.num_max_replicas or MOST_TASKS, policy.replica_step
    members = job.spec.min_members.get(WORKER, 1)
    now = f"job {job.metadata.name} requests {job.spec.worker_count} workers and would request {to}"
    if to < 1:
        return Misfit("EveryWorker", f"{now}: at least one worker has to stay")
    if to < max(least, members):
        which = "numMinReplicas" if least >= members else "minMembers.Worker"
        return Misfit("BelowMinimum", f"{now}: {which} is {max(least, members)}")
    if to > most:
        return Misfit("AboveMaximum", f"{now}: numMaxReplicas is {most}")
    if policy is not None and policy.num_min_replicas is not None and (to - least) % step:
        return Misfit("OffStep", f"{now}: its sizes are {least} and more in steps of {step}")
    return None
