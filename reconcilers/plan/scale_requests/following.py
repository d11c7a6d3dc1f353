"""The request of a job that is under way: the change of numTasks, its completion, its end at the timeout.

One rule: pure. What the request wants is in its status; how far it has come shows in the job. In a later generation of
the job than the recorded one, numTasks was changed: by a worker to what the request wants, or else by somebody else.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import progress
from reconcilers.plan.scale_requests import current, request_status
from reconcilers.plan.scale_requests.judgement import Misfit
from reconcilers.plan.scale_requests.request_status import MOST_PODS, RequestPlan
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Observation, SetWorkers
from reconcilers.views.scale_request_view import RequestView


@dataclass(frozen=True, slots=True)
class Following:
    """A request that has begun, with its job."""

    request: RequestView
    job: TorchJob
    observation: Observation
    settings: ReconcileSettings
    now: datetime

    @property
    def start(self) -> datetime:
        """The time at which the request began."""
        return self.request.status.start_time or self.now

    @property
    def remaining(self) -> float:
        """The seconds that the request may still take."""
        return (self.start + timedelta(seconds=self.request.timeout) - self.now).total_seconds()

    @property
    def size(self) -> int:
        """The number of workers that the job should request now."""
        status = self.request.status
        return (status.from_workers if current.is_rolling_back(self.request) else status.to) or 0

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
        if self.job.admission is None:
            return 0
        own = Grant(self.job, self.job.admission).own_pods(self.observation.pods)
        workers = (pod for pod in own if pod.task == WORKER.lower() and not progress.is_outdated(self.job, pod))
        return sum((pod.running and not pod.gated and not pod.deleting) or pod.phase == "Succeeded" for pod in workers)

    @property
    def all_run(self) -> bool:
        """Whether all granted workers run. Workers whose stage has not begun have no pods, and none are expected."""
        begun = progress.has_begun(self.job, WORKER)
        return not begun or not self.settings.make_pods or self.running >= (self.granted or 0)

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the workers that the job has been granted since the request began."""
        return current.added_workers(self.request, self.job)[:MOST_PODS]

    def plan(self) -> RequestPlan:
        """Return the next actions for the request."""
        wish, job = self.job.spec.worker_count, self.job
        if job.is_finished:
            return self.fail("JobFinished", f"job {self.request.job} has {job.status.phase.lower()}")
        if self.observation.size_refused:
            return self.fail("Refused", self.observation.size_refused)
        if wish == self.size:
            return self._finish_rollback() if current.is_rolling_back(self.request) else self._go_on()
        if job.metadata.generation != self.request.status.job_generation:
            return self.fail("Superseded", f"the job was changed in the meantime, and requests {wish} workers now")
        if self.request.deleting and not current.is_rolling_back(self.request):
            return self.fail("Deleted", "the request was deleted before it began")
        return RequestPlan((SetWorkers(self.size, job.metadata.resource_version),))

    def fail(self, reason: str, message: str) -> RequestPlan:
        """Return the plan that ends the request without success."""
        return request_status.fail(self.request, Misfit(reason, message), self.now, self.job)

    def _go_on(self) -> RequestPlan:
        """Return the plan for a request whose size the job requests."""
        request, status = self.request, self.request.status
        if self._is_complete():
            seconds = (self.now - self.start).total_seconds()
            message = f"from {status.from_workers} to {status.to} workers in {seconds:.0f} s"
            after = request_status.change_phase(request, "Succeeded", message, self.now)
            return RequestPlan(request_status.write(request, after))
        if cause := self._cause_to_stop():
            return self._roll_back(cause) if request.adds else self.fail(cause.reason, cause.message)
        if status.phase == "Admitted" and (pods := self._moved()):
            after = request_status.change_phase(request, "Scaling", status.message, self.now, pods=pods[:MOST_PODS])
            return RequestPlan(request_status.write(request, after))
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
        """Return how many workers the job may have when it requests so many: idle growth stays."""
        return max(wanted, self.job.wanted_workers)

    def _moved(self) -> tuple[str, ...]:
        """Return the names of the workers that are being added or removed."""
        if self.request.adds:
            return self.added if self.granted == self.request.status.to else ()
        return self.victims

    def _cause_to_stop(self) -> Misfit | None:
        """Return why the request ends before it is complete; None if it goes on."""
        if self.request.deleting:
            return Misfit("Deleted", "the request was deleted")
        if self.job.spec.suspend and self.request.adds:
            return Misfit("JobSuspended", f"job {self.request.job} was suspended")
        if self.remaining > 0:
            return None
        wanted, seconds = self.request.status.to, self.request.timeout
        return Misfit("TimedOut", f"{self.running} of {wanted} workers run after {seconds} s")

    def _roll_back(self, cause: Misfit) -> RequestPlan:
        """Record that the request is undone, and what it has added, before anything is undone."""
        update = {
            "reason": cause.reason,
            "message": cause.message,
            "job_generation": self.job.metadata.generation,
            "pods": self.added,
        }
        return RequestPlan(request_status.write(self.request, self.request.status.model_copy(update=update)))

    def _finish_rollback(self) -> RequestPlan:
        """Return the failure of a request once the workers that it has added are gone or named as victims."""
        if self.granted is not None and self.granted - len(self.victims) > self._most(self.size):
            return RequestPlan()
        return self.fail(self.request.status.reason, self.request.status.message)
