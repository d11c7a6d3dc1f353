"""Jobs whose domain takes no pods, such as a rack that is drained: they give their room back.

One rule: pure. Room on nodes that take no pods is of use to nobody, and another domain may have room.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from crds.torchjob.torchjob import TorchJob
from gang.values import TaskMembers
from reconcilers.plan import moment, progress
from reconcilers.plan.health import missing_pods
from reconcilers.plan.progress import JobProgress
from reconcilers.pods import task_members
from reconcilers.views.pod_view import PodView


def lacks_nodes(job: TorchJob, job_progress: JobProgress, pods: Iterable[PodView], now: datetime) -> bool:
    """Return whether pods without which a job cannot run have had no node for a while, in which nodes may come back."""
    oldest = now.timestamp() - missing_pods.SOON
    present = [pod for pod in pods if not (pod.deleting or progress.is_outdated(job, pod))]
    due = (stage for stage in job_progress.begun if moment.must_run(job, stage))
    needed = (name for stage in due for name in task_members.training_tasks(job.spec, stage.tasks))
    return any(
        _lacks_nodes(job_progress.members[name], [pod for pod in present if pod.task == name.lower()], oldest)
        for name in needed
        if not job_progress.enough(name)
    )


def _lacks_nodes(task: TaskMembers, pods: Sequence[PodView], oldest: float) -> bool:
    """Return whether too few pods of a task have nodes, and one has waited since `oldest`."""
    without = [pod for pod in pods if not (pod.node or pod.finished)]
    waits = any(pod.since is not None and pod.since <= oldest for pod in without)
    return waits and len(pods) - len(without) < min(task.minimum, task.wanted)
