"""The finding in the status of a job that it hangs: in words, and for how long it stays there.

One rule: pure. A finding is about one run of the job. The write that begins another run removes the finding, so that no
worker acts on a finding twice, and no leader has to remove one.
"""

from crds import timestamps
from crds.torchjob import conditions
from crds.torchjob.status import Hang, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.views import pod_view

HANGING = "Hanging"
"""Reason: no step is made; of the condition Running, and of Admitted while the pods are restarted because of that."""


def describe(hang: Hang) -> str:
    """Return the sentence about a hang; the sentence is the same for every reader of the finding."""
    since = timestamps.format_time(hang.since.timestamp())
    if hang.blamed:
        how = "is silent" if hang.blamed in hang.silent else "makes no step"
        return f"pod {hang.blamed} {how} since {since}, while others report"
    behind, silent = (pod_view.list_names(names) for names in (hang.behind, hang.silent))
    lists = [f"furthest behind: {behind}"] if behind else []
    lists += [f"silent: {silent}"] if silent else []
    return "; ".join([f"no pod makes a step since {since}", *lists])


def is_shown(status: TorchJobStatus) -> bool:
    """Return whether the condition Running says that the job hangs."""
    running = conditions.find(status.conditions, "Running")
    return running is not None and running.status == "True" and running.reason == HANGING


def settle(job: TorchJob, after: TorchJobStatus, message: str) -> TorchJobStatus:
    """Return a status of a job without a hang that is void; `message` is the message for a running job that does
    not hang."""
    if after.hang is None and not is_shown(after):
        return after
    if job.model_copy(update={"status": after}).hang is not None:
        return after
    update = {"hang": None, "conditions": show(after, "Running", message) if is_shown(after) else after.conditions}
    return after.model_copy(update=update)


def show(status: TorchJobStatus, reason: str, message: str) -> conditions.Conditions:
    """Return the conditions of a running job with another reason of the condition Running."""
    running = conditions.find(status.conditions, "Running")
    if running is None or running.status != "True":
        return status.conditions
    since, generation = running.last_transition_time, running.observed_generation
    return conditions.set_condition(status.conditions, "Running", True, reason, message, since, generation)
