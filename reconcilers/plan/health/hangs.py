"""The actions of a worker on a job that the coordinator has found to hang.

One rule: pure. The finding does not decide the action: the job's `onHang` does, at the time of the action. A hang is
handled once: the patch that counts the restart begins another run, in which the finding is void.

    onHang    pod to blame   what follows
    Report    any            the condition Running says so, until a step is made
    Restart   none           all pods are restarted, in place where possible; counted, as a failure of the job
              one            that pod is replaced, alone or with a restart of all others, as if it had failed; and its
                             node counts as one on which it failed
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from crds.torchjob.status import Hang, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import failures, restart_counts, status
from reconcilers.plan.failures import JobVerdict, PodFault
from reconcilers.plan.health import finding
from reconcilers.plan.health.finding import HANGING
from reconcilers.settings import ReconcileSettings
from reconcilers.values import EmitEvent
from reconcilers.views.pod_view import PodView


def event(hang: Hang) -> EmitEvent:
    """Return the Event about a hang. The text of the Event follows from the finding alone, so a repetition creates no
    second Event.
    """
    return EmitEvent(HANGING, finding.describe(hang), warning=True)


def report(job: TorchJob, hang: Hang) -> TorchJobStatus | None:
    """Return the status that shows a hang; None if it shows it already."""
    if finding.is_shown(job.status):
        return None
    after = status.observe_generation(job)
    return after.model_copy(update={"conditions": finding.show(after, HANGING, finding.describe(hang))})


def judge(job: TorchJob, hang: Hang, pods: Sequence[PodView], now: datetime) -> JobVerdict:
    """Return the verdict on a job that hangs and is to be restarted, as on a failure of the pod to blame.

    Without such a pod all pods are restarted, and no pod is blamed.
    """
    blamed = next((pod for pod in pods if pod.name == hang.blamed and pod.started), None)
    fault = PodFault(blamed or pods[0], "Retryable", finding.describe(hang), irreplaceable=blamed is None)
    verdict = failures.judge(job, [fault], 0, now.timestamp())
    if verdict.permanent:
        return verdict
    if blamed is None:
        return replace(verdict, reason=HANGING, marks=(), pods=(), node="", wait=0.0)
    return replace(verdict, reason=HANGING, node=blamed.node, wait=0.0)


def restart(
    job: TorchJob, verdict: JobVerdict, pods: Iterable[PodView], now: datetime, settings: ReconcileSettings
) -> TorchJobStatus:
    """Count a restart because of a hang. A pod to blame is replaced, also where all others are restarted in place."""
    after = restart_counts.count_failure(job, verdict, pods, now, settings)
    return after.model_copy(update={"replacing": verdict.marks}) if verdict.whole else after
