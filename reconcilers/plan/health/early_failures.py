"""Failures of a job's own code before its first step, such as a module that cannot be imported.

One rule: pure. The attempt after such a failure decides: if it ends with the same output, again before its first step,
then no later attempt would succeed. An owner who has set `backoffLimit` has decided on the number of attempts.
"""

from crds import excerpts
from crds.torchjob.status import MOST_EARLY
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import rendezvous
from reconcilers.views.pod_view import PodView

LONGEST_RUN = 60.0
"""The seconds within which a program fails that has not made its first step, where it reports none."""
AGAIN = (
    "the attempt before has ended with the same, both within their first minute, so there is no other one (set "
    "backoffLimit for more)"
)


def read(job: TorchJob, pod: PodView) -> str:
    """Return the last output of a pod whose program failed by itself before its first step; empty for any other."""
    task = next(task for name, task in job.spec.torch_task_specs.items() if name.lower() == pod.task)
    is_own = pod.exit_code == 1 and pod.cause in (None, 1) and not pod.lost_peer
    is_own = is_own and task.restart_policy != "Always" and not task.auxiliary
    reported = job.status.reported
    has_moved = reported is not None and reported.moved and reported.run == job.status.run
    if not is_own or has_moved or pod.since is None or pod.ended is None:
        return ""
    policy = job.spec.torch_elastic_policy
    launches = 1 + policy.effective_max_restarts if policy and rendezvous.meets_others(job, pod) else 1
    is_early = pod.ended - pod.since < LONGEST_RUN * launches
    return excerpts.excerpt(pod.message, MOST_EARLY) if is_early else ""


def is_again(job: TorchJob, early: str) -> bool:
    """Return whether the latest attempt failed with the same output, and the owner left the number of attempts to
    torchq."""
    return bool(early) and early == job.status.early_failure and "backoff_limit" not in job.spec.model_fields_set
