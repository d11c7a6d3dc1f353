"""What a failed pod means for its job.

One rule: pure. A failure counts once: the restart label of a pod that was counted is older than the job's generation.

    restartPolicy   a failed pod
    Never           fails the job
    ExitCode        fails the job on codes up to 127, else as OnFailure
    OnFailure       is replaced, up to backoffLimit restarts of the job
    Always          the same; its containers are restarted by the node already, so that it only fails with the node

Whatever the policy but Always, a pod that cannot be started fails the job at once: it could not be started next time.

Codes from 128 on mean a signal (out of memory, eviction, a node going down), which is not the program's fault; neither
is a code that nobody knows (a lost node).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from crds.torchjob import TorchJob
from reconcilers.pod_view import PodView

NEVER_BEGAN = frozenset({"ContainerCannotRun", "NotSupported", "StartError"})
"""Reasons of containers that could not be started, and of pods that the embedded node cannot run."""
NOT_THE_JOBS_FAULT = frozenset(
    {
        "ContainerStatusUnknown",
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
"""Reasons a node or its scheduler gives for a pod it ended or did not take; `OutOf<resource>` besides."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the job: it fails for good, or the failed pods are replaced."""

    permanent: bool
    reason: str
    message: str


def fresh(job: TorchJob, pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """The failed pods that have not been counted yet.

    Restarting the whole job counts first and deletes then, and what is counted shows by its label. Replacing single
    pods deletes first and counts then: a crash in between forgives a failure, but never counts one twice.
    """
    failed = (pod for pod in pods if pod.phase == "Failed" and not pod.deleting)
    whole = job.spec.scope == "Job"
    return tuple(pod for pod in failed if not whole or pod.restart == job.status.restart_generation)


def judge(job: TorchJob, failed: tuple[PodView, ...]) -> Verdict:
    """What failed pods mean together: one restart at most, and none if one of them failed for good."""
    policies = {name.lower(): task.restart_policy for name, task in job.spec.torch_task_specs.items()}
    final = next((pod for pod in failed if is_permanent(policies[pod.task], pod)), None)
    if final is not None:
        return Verdict(True, "PodFailed", describe(final))
    if job.status.restart_count >= job.spec.backoff_limit:
        limit = f"no restart left of backoffLimit {job.spec.backoff_limit}"
        return Verdict(True, "BackoffLimitExceeded", f"{describe(failed[0])}; {limit}")
    return Verdict(False, "Restarting", describe(failed[0]))


def is_permanent(policy: str, pod: PodView) -> bool:
    """Whether a failed pod under a restart policy fails its job."""
    match policy:
        case "Never":
            return True
        case "ExitCode":
            return pod.reason in NEVER_BEGAN or not _passing(pod)
        case "OnFailure":
            return pod.reason in NEVER_BEGAN
    return False


def _passing(pod: PodView) -> bool:
    """Whether it was not the program that failed."""
    elsewhere = pod.reason in NOT_THE_JOBS_FAULT or pod.reason.startswith("OutOf")
    return elsewhere or pod.exit_code is None or pod.exit_code >= 128


def describe(pod: PodView) -> str:
    """A sentence that names the pod and how it ended."""
    how = f"with exit code {pod.exit_code}" if pod.exit_code is not None else "without an exit code"
    why = f" ({pod.reason})" if pod.reason else ""
    return f"pod {pod.name} failed {how}{why}" + (f": {pod.message}" if pod.message else "")
