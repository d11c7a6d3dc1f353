"""The choice of the driver that restarts the containers of a job's next pods in place.

One rule: pure. The choice is in the job's status before a pod is made according to it, and is made anew when pods are
missing.

    setting           choice
    auto              kubernetes where it can, else kruise where its requests are served, else recreate
    kubernetes        kubernetes where it can, else recreate
    kruise            kruise
    recreate, local   none: all pods are alike for them

With kubernetes, each pod has a restart agent (`reconcilers.pods.restart_agent`), and the job is charged for its agents
before a pod is made with one. Where an agent prevents a pod, the job's pods are made without agents, and this decision
is kept: a job never waits for the room of its agents. An agent prevents a pod if the queue or the pool has no room for
it, if the API server refuses pods that have one, if no node can hold them, or if it cannot run in the job's image.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crds import excerpts
from crds.api_resources import RECREATE_REQUESTS
from crds.torchjob.status import Admission, InPlace, PodMeasurements, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import restart_counts, status
from reconcilers.plan.moment import Moment
from reconcilers.plan.recovery import Recovery
from reconcilers.pods import measure, restart_agent
from reconcilers.settings import ReconcileSettings
from reconcilers.values import NOT_ASKED, Blocker, EmitEvent, InvalidPod, NoRoom, Observation, OverQuota, RaiseCharge
from reconcilers.views.pod_view import PodView

LONGEST = 1_000
"""The largest number of characters of a message."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The driver that restarts the next pods in place, and the charge of the job for it."""

    in_place: InPlace | None
    """None if pods need nothing for a restart in place."""
    admission: Admission
    measured: PodMeasurements | None
    raises: tuple[RaiseCharge, ...] = ()
    """The charge for the agents, which is raised before the status is written."""

    @property
    def update(self) -> Mapping[str, Any]:
        """The fields of the status that hold the choice."""
        return {"in_place": self.in_place, "admission": self.admission, "measured": self.measured}


def preferred(settings: ReconcileSettings, obstacle: str) -> InPlace | None:
    """Return the driver that restarts pods in place; `obstacle` is the reason for which Kubernetes cannot, empty if
    Kubernetes can. None if pods need nothing for a restart in place.
    """
    if not settings.make_pods or settings.in_place in ("recreate", "local"):
        return None
    if settings.in_place == "kruise":
        return InPlace(driver="kruise")
    if not obstacle:
        return InPlace(driver=restart_agent.DRIVER)
    has_kruise = settings.in_place == "auto" and settings.version(RECREATE_REQUESTS) is not None
    return InPlace(driver="kruise" if has_kruise else "recreate", message=excerpts.excerpt(obstacle, LONGEST))


def choose(job: TorchJob, admission: Admission, at: Moment) -> Choice:
    """Return the choice for the next pods of a job, with the charge for their agents."""
    observation, settings = at.observation, at.settings
    before, measured = job.status.in_place, job.status.measured
    if before is not None and before.settled:
        return Choice(_carry_on(job, preferred(settings, before.message), settled=True), admission, measured)
    chosen = preferred(settings, _obstacle(before, observation))
    if chosen is None or chosen.driver != restart_agent.DRIVER:
        return Choice(_carry_on(job, chosen), admission, measured)
    excess = measure.find_excess_of(job, admission.charge, frozenset(restart_agent.requests(job).items()))
    if excess is None:
        return Choice(_carry_on(job, chosen), admission, measured)
    full = observation.met(NoRoom)
    if full is not None or excess.uncountable:
        room = measure.ROOM[full.by if full is not None else "quota"].format(admission.queue)
        declined = preferred(settings, f"{room} has no room for restart agents")
        return Choice(_carry_on(job, declined, settled=True), admission, measured)
    charged = admission.model_copy(update={"charge": dict(excess.charge)})
    raises = (RaiseCharge(admission.attempt, excess.charge),)
    return Choice(chosen.model_copy(update={"charged": True}), charged, excess.measured, raises)


def _obstacle(before: InPlace | None, observation: Observation) -> str:
    """Return why Kubernetes cannot restart the next pods in place, as far as the observation tells, else as before."""
    if before is None or observation.restart_obstacle != NOT_ASKED:
        return observation.restart_obstacle
    return "" if before.driver == restart_agent.DRIVER else before.message


def decline_refused(job: TorchJob, at: Moment) -> TorchJobStatus | None:
    """Return the status of a job whose pods the API server has refused with their agents; None if it has not."""
    if not restart_agent.is_chosen(job.status) or job.admission is None:
        return None
    match at.observation.obstacle:
        case InvalidPod(message) | OverQuota(message=message) | Blocker(status.PODS_FORBIDDEN, message):
            return _without(job, job.status, at.settings, f"refused with a restart agent: {message}")
    return None


def decline_unbound(
    job: TorchJob, after: TorchJobStatus, pods: Iterable[PodView], settings: ReconcileSettings
) -> TorchJobStatus:
    """Return the status of a job that did not run in time: without agents, if no node had room for one of its pods."""
    unbound = [pod for pod in pods if not pod.node and pod.problem.startswith("Unschedulable")]
    if not unbound or not restart_agent.is_chosen(job.status) or status.admission_reason(after) != status.LATE:
        return after
    return _without(job, after, settings, f"no node could hold pod {unbound[0].name} with a restart agent")


def replace_unable(job: TorchJob, pods: Iterable[PodView], settings: ReconcileSettings) -> Recovery | None:
    """Return the recovery from agents that cannot run: pods that wait for their agents are replaced by pods without
    agents, and this replacement is not counted."""
    unable = [pod for pod in pods if pod.agent_failure and not pod.finished and not pod.deleting]
    marks = [pod.uid for pod in unable if not pod.started and pod.uid not in job.status.replacing]
    if not marks and not (unable and restart_agent.is_chosen(job.status)):
        return None
    why = f"the restart agent of pod {unable[0].name} cannot run: {unable[0].agent_failure}"
    after = restart_counts.replace_pods(job, marks, pods)
    event = EmitEvent("NoRestartAgent", f"its pods are made without restart agents: {why}", warning=True)
    return Recovery(_without(job, after, settings, why), actions=(event,), requeue_after=0.0)


def _without(job: TorchJob, after: TorchJobStatus, settings: ReconcileSettings, why: str) -> TorchJobStatus:
    return after.model_copy(update={"in_place": _carry_on(job, preferred(settings, why), settled=True)})


def _carry_on(job: TorchJob, chosen: InPlace | None, *, settled: bool = False) -> InPlace | None:
    """Return a choice with the remaining parts of the previous choice: pods with agents may still exist, and are paid
    for.
    """
    before = job.status.in_place
    if chosen is None:
        return None
    return chosen.model_copy(update={"charged": before is not None and before.charged, "settled": settled})
