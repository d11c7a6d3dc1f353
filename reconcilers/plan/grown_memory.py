"""The memory of a job's pods that has grown, compared with the job's charge.

One rule: pure. The job is charged for more memory before any pod is made with it; until then the task's missing pods
wait. Memory grows where a pod was killed because it had used up its own, and never shrinks while the job exists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds.resources import quantities
from crds.resources.amounts import Amounts
from crds.torchjob import memory_growth
from crds.torchjob.memory_growth import MEMORY
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.tasks import TaskSpec
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import status
from reconcilers.pods.measure import ROOM
from reconcilers.values import EmitEvent, Limit, NoMemory, RaiseCharge
from reconcilers.views.pod_view import PodView

TRY_AGAIN = 30.0
"""Seconds after which a job without room for its memory tries again to be charged for it."""


@dataclass(frozen=True, slots=True)
class UnchargedMemory:
    """The memory that a job is not charged for yet, although pods of some tasks are to have it."""

    amounts: Mapping[str, int]
    """The memory of the main container of the next pods, in bytes, by task type."""
    charge: Amounts
    """The charge that the job needs for it."""
    more: int
    """The difference to the current charge."""

    def describe_refusal(self, queue: str, by: Limit) -> str:
        """Return the message for a queue without room for this charge."""
        each = ", ".join(f"{_text(amount)} of memory for {name}" for name, amount in sorted(self.amounts.items()))
        needs = f"a pod used up its memory: the next ones get {each}, {_text(self.more)} more in all"
        return f"{needs}; {ROOM[by].format(queue)} has no room for that"


def raised(job: TorchJob, pods: Iterable[PodView]) -> dict[str, int]:
    """Return the memory of the next pods by task type, after these pods have ended."""
    amounts = dict(job.status.memory)
    for pod in pods:
        name, task = _task(job, pod)
        amount = _after(task, amounts.get(name, 0), pod)
        if amount > amounts.get(name, 0):
            amounts[name] = amount
    return amounts


def is_outgrown(job: TorchJob, pod: PodView) -> bool:
    """Return whether a pod was killed for using up its memory, and the pod in its place gets more."""
    name, task = _task(job, pod)
    return _after(task, job.status.memory.get(name, 0), pod) > pod.used_memory > 0


def charged(job: TorchJob) -> dict[str, int]:
    """Return the grown memory that a pod requests, by task in lower case; empty if the job is not charged for this
    memory."""
    if find_uncharged(job) is not None:
        return {}
    return {name.lower(): amounts[MEMORY] for name, amounts in job.grown_memory.items()}


def growth_events(job: TorchJob, after: TorchJobStatus) -> tuple[EmitEvent, ...]:
    """Return the Events for memory that has grown."""
    return tuple(
        EmitEvent("MemoryGrown", f"a pod of {name} used up its memory: the next ones get {_text(amount)}")
        for name, amount in sorted(after.memory.items())
        if amount > job.status.memory.get(name, 0)
    )


def find_uncharged(job: TorchJob) -> UnchargedMemory | None:
    """Return the memory that a job is not charged for yet; None if its charge is sufficient.

    Workers that are being removed count like the other workers: the job pays for them until they are gone.
    """
    grown, admission = job.grown_memory, job.admission
    if not grown or admission is None:
        return None
    needed = job.charge_of(admission.workers or job.spec.worker_count)[MEMORY]
    more = needed - admission.charge.get(MEMORY, 0)
    if more <= 0:
        return None
    tasks, raised_to = job.spec.torch_task_specs, job.status.memory
    amounts = {name: memory_growth.of_next(tasks[name], raised_to[name]) for name in grown}
    return UnchargedMemory(amounts, {**admission.charge, MEMORY: needed}, more)


def charge_growth(
    job: TorchJob, after: TorchJobStatus, no_memory: NoMemory | None
) -> tuple[tuple[RaiseCharge, ...], TorchJobStatus]:
    """Return the charge for memory that grows with a status, to be carried out before the status is written, and the
    status with it; the status alone if there is no room, or no memory to charge."""
    grown, admission = job.model_copy(update={"status": after}), job.admission
    uncharged = find_uncharged(grown)
    if uncharged is None or admission is None or no_memory is not None:
        return (), after
    raises = RaiseCharge(admission.attempt, uncharged.charge, for_memory=True)
    return (raises,), status.record_charge(grown, uncharged.charge, after.measured)


def _after(task: TaskSpec, current: int, pod: PodView) -> int:
    """Return the memory of the next pods after the end of a pod; 0 if it does not grow."""
    if task.memory_growth is None:
        return 0
    grown = memory_growth.after_use(task.memory_growth, pod.used_memory)
    return memory_growth.of_next(task, max(current, grown))


def _task(job: TorchJob, pod: PodView) -> tuple[str, TaskSpec]:
    return next((name, task) for name, task in job.spec.torch_task_specs.items() if name.lower() == pod.task)


def _text(amount: int) -> str:
    return quantities.format_amount(MEMORY, amount)
