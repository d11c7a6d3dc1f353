"""How a job that holds its room gets on: what it makes next, and what there is to say about it.

One rule: pure. Groups come before the pods they bind, a rank 0's service before the rank 0, and the word that a stage
has begun before anything of it.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from crds.torchjob.status import StageStatus, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from gang import backends
from reconcilers.plan import backoff, progress, start_gates, status
from reconcilers.plan.gangs import Groups, Scheduling
from reconcilers.plan.lifecycle import Run
from reconcilers.plan.progress import Progress
from reconcilers.pods import manifests
from reconcilers.pods.task_members import Member
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, CreatePods, CreateService, Make, Observation


@dataclass(frozen=True, kw_only=True)
class Advance:
    """A job, and what there is of it."""

    run: Run
    observation: Observation
    settings: ReconcileSettings
    now: datetime
    stuck: bool = False
    """Whether pods that should be gone are kept by others."""

    @cached_property
    def progress(self) -> Progress:
        """How far it has come."""
        return progress.of(self.run.job, self.run.pods)

    @cached_property
    def scheduling(self) -> Scheduling:
        """How its pods are bound."""
        return Scheduling(
            job=self.run.job,
            admission=self.run.admission,
            backend=backends.of(self.run.admission.gang_scheduler, self.settings.served.__contains__),
            at_once=self.settings.pods_at_once,
        )

    @cached_property
    def groups(self) -> Groups:
        """What becomes of its groups."""
        if not self.settings.make_pods:
            return Groups()
        return self.scheduling.groups(self.progress, self.observation.groups, self.run.pods)

    def status(self) -> TorchJobStatus:
        """Running once every task of the stages that have begun has its minimum; it stays so until a restart."""
        job = self.run.job
        stages = self._stages()
        return backoff.forgotten(self._phase(job).model_copy(update={"stages": stages}), self.now)

    def _phase(self, job: TorchJob) -> TorchJobStatus:
        hindrance = self.groups.hindrance
        hindered = status.is_hindered(job.status) and not (self.stuck and self._says_stuck())
        if hindrance is not None:
            return status.hindered(job, hindrance, self.now)
        runs = progress.running(job, self.progress, progress.written(job))
        if runs and (job.status.phase != "Running" or (hindered and not self._lacks_pods())):
            return status.running(job, self.now)
        if hindered and self._is_over():
            return status.unhindered(job, self.now)
        return status.seen(job)

    def _lacks_pods(self) -> bool:
        """Whether pods that were refused are to be tried again: until they are made, what is said of them stays."""
        return status.reason(self.run.job.status) == status.PODS_FORBIDDEN and bool(self._pods())

    def _says_stuck(self) -> bool:
        return status.reason(self.run.job.status) == status.PODS_STUCK

    def _is_over(self) -> bool:
        """Whether what hinders the job was a matter of groups, of which none is missing or kept out any more, or of
        pods that are gone."""
        if self._says_stuck():
            return True
        about_groups = status.is_about_groups(self.run.job.status)
        return about_groups and not any(isinstance(each, Make) for each in self.groups.actions)

    def _stages(self) -> dict[str, StageStatus]:
        """Which stages have begun, and which of them have run."""
        known = dict(self.run.job.status.stages)
        for stage in self.progress.begun if self.settings.make_pods else ():
            found = known.get(str(stage.index))
            if stage.awaits and found is None:
                known[str(stage.index)] = StageStatus(began=self.now)
            elif found and found.running is None and progress.running(self.run.job, self.progress, (stage,)):
                known[str(stage.index)] = StageStatus(began=found.began, running=self.now)
        return known

    def actions(self) -> tuple[Action, ...]:
        """Groups, open gates, and the pods that are missing and may be made."""
        if not self.settings.make_pods:
            return ()
        return (*self.groups.actions, *start_gates.opening(self.progress, self.run.pods), *self._pods())

    def _pods(self) -> tuple[Action, ...]:
        there = {pod.name for pod in self.run.pods}
        absent = [each for name, each in self.run.members.items() if name not in there and not self._waits(name)]
        if not absent:
            return ()
        blueprint = self._blueprint()
        missing = [each for each in absent if self._may_be_made(blueprint, each)]
        first = self._first(missing)
        leads = [each for each in missing if each.name == each.lead and blueprint.named(each.lead)]
        services = tuple(CreateService(manifests.service(blueprint, each)) for each in leads)
        some = (tuple(each for each in missing if (each.name in first) is before) for before in (True, False))
        return (*services, *(CreatePods(manifests.Pods(blueprint, each)) for each in some if each))

    def _first(self, missing: list[Member]) -> frozenset[str]:
        """The first pod of each task of which none is there: what the API server makes of it is looked at before any
        other pod is made. None if nothing would come after them."""
        there = {pod.task for pod in self.run.pods}
        first = {each.task_type: each.name for each in reversed(missing) if each.task_type.lower() not in there}
        return frozenset(first.values() if len(first) < len(missing) else ())

    def _waits(self, pod: str) -> bool:
        return backoff.waits(self.run.job.status, pod, self.settings, self.now)

    def _blueprint(self) -> manifests.Blueprint:
        together, gone = self.scheduling.together, self.scheduling.gone(self.progress, self.run.pods)
        return manifests.Blueprint(
            job=self.run.job,
            admission=self.run.admission,
            members=self.run.members,
            settings=self.settings,
            elsewhere=self.observation.other_nodes,
            backend=self.scheduling.backend,
            gangs={each.index: self.scheduling.gang(each, gone) for each in self.progress.begun} if together else {},
            started=self.progress.started,
        )

    def _may_be_made(self, blueprint: manifests.Blueprint, member: Member) -> bool:
        """With its whole stage where a gang scheduler binds it, else when its own upstreams are there."""
        if member.task_type in self.progress.passed:
            return False
        if blueprint.bound(member):
            return member.stage in self.groups.ready
        return member.task_type in self.progress.started
