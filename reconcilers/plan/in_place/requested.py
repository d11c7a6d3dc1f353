"""A restart that the owner of a job has requested: which action it causes, and when.

One rule: pure. A request to a node may be repeated, and comes first; the status then records that it was made. The
owner's word decides how pods are restarted. Without such a choice, the restart is in place where a restart in place is
fast and shortens no grace.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from crds.torchjob.restart_requests import RestartRequest
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, restart_counts, status
from reconcilers.plan.elastic import checkpoints
from reconcilers.plan.elastic.checkpoints import SaveRequest
from reconcilers.plan.in_place.restarts import Restarts
from reconcilers.values import Action, EmitEvent
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

MOST_NAMED = 10
WITH_GRACE = f"by new pods, which keeps their grace period: a restart in place would leave them {checkpoints.SECONDS} s"


@dataclass(frozen=True, kw_only=True)
class RequestedRestart:
    """An open request, with the pods of its job and the drivers that can restart the pods."""

    job: TorchJob
    request: RestartRequest
    restarts: Restarts
    now: datetime

    @cached_property
    def targets(self) -> tuple[PodView, ...]:
        """The pods that the owner wants restarted."""
        return tuple(pod for pod in self.restarts.pods if _is_target(self.request, pod) and not pod.deleting)

    @cached_property
    def in_place(self) -> tuple[PodView, ...]:
        """The pods that are restarted in place."""
        if self.request.how == "Recreate" or self.keeps_grace:
            return ()
        explicit = self.request.how == "InPlace"
        return tuple(pod for pod in self.targets if self.restarts.can_restart(pod, explicit=explicit))

    @cached_property
    def keeps_grace(self) -> bool:
        """Whether pods are replaced because a restart in place would take their grace."""
        healthy = (pod for pod in self.targets if self.restarts.can_restart(pod))
        return not self.request.how and checkpoints.must_replace(self.job, healthy)

    @property
    def replaced(self) -> tuple[PodView, ...]:
        """The pods of a task that are replaced."""
        staying = frozenset(pod.uid for pod in self.in_place)
        return tuple(pod for pod in self.targets if pod.uid not in staying) if self.request.task else ()

    @property
    def asks_to_save(self) -> TorchJobStatus | None:
        """The status that asks the job to save first; None if it need not, or if it is asked already."""
        if not checkpoints.must_save_in_place(self.job, self.in_place):
            return None
        saving = checkpoints.begin(self.job, self.request.id, self.now)
        return None if saving is None else status.observe_generation(self.job).model_copy(update={"saving": saving})

    def save(self, reported: int) -> SaveRequest:
        """Return the request to save that the restart waits for; `reported` is the number of the latest request that a
        report answers."""
        saving = self.job.status.saving
        if saving is None or not checkpoints.must_save_in_place(self.job, self.in_place):
            return SaveRequest()
        return checkpoints.pending(self.job, saving.since, self.now, reported)

    @property
    def after(self) -> TorchJobStatus:
        """The status in which the request is carried out. A requested restart is not counted."""
        if self.request.task is None:
            request = self.request.model_copy(update={"how": "Recreate"}) if self.keeps_grace else self.request
            return restart_counts.restart_on_request(self.job, request, self.now)
        update = {"restart_request": self.request.id, "saving": None, **backoff.end_pause(self.job.status, self.now)}
        marks = [pod.uid for pod in self.replaced]
        return restart_counts.replace_pods(self.job, marks, self.restarts.pods).model_copy(update=update)

    @property
    def requests(self) -> tuple[Action, ...]:
        """The requests to nodes for single pods; the requests for all pods follow from the status."""
        return self.restarts.request_restart(self.in_place, self.request.id) if self.request.task else ()

    @property
    def events(self) -> tuple[EmitEvent, ...]:
        """The Events that report the actions."""
        names = pod_view.list_names([pod.name for pod in self.targets], MOST_NAMED)
        what = "all pods" if self.request.task is None else names or "no pod: no pod has that task and index"
        how = f", {WITH_GRACE}" if self.keeps_grace else ""
        message = f"its owner asked for a restart of {what} ({self.request.id}){how}"
        return (EmitEvent("RestartRequested", message), *self._refusal())

    def _refusal(self) -> Iterable[EmitEvent]:
        """Return the Event about pods that cannot be restarted in place although their owner has requested a restart in
        place.
        """
        if self.request.how != "InPlace" or not self.replaced:
            return ()
        names = pod_view.list_names([pod.name for pod in self.replaced], MOST_NAMED)
        message = f"pods are replaced, because nothing can restart their containers in place now: {names}"
        return (EmitEvent("NotRestartedInPlace", message, warning=True),)


def _is_target(request: RestartRequest, pod: PodView) -> bool:
    same_task = request.task is None or pod.task == request.task.lower()
    return same_task and request.index in (None, pod.index)
