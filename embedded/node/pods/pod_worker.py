"""One pod on this node: read its runs, decide, act, report.

One rule: level-triggered. `sync` may be called at any time and any number of times, also by a node process that has
just started and remembers nothing.
"""

import logging
from dataclasses import replace

from crds import labels, timestamps
from embedded import pod, pod_requirements
from embedded.node.pods.failed_output import messages, missing_file
from embedded.node.pods.node_context import NodeContext
from embedded.node.pods.pod_containers import PodContainers
from embedded.node.pods.status_reporter import PodStatusWriter
from embedded.node.shutdown import shutdown
from embedded.node.shutdown.shutdown import PodShutdown
from embedded.node.shutdown.shutdown_record import EndingPod
from embedded.node.status import pod_lifecycle, pod_status
from embedded.node.status.pod_lifecycle import Action, StartContainer, Termination
from embedded.node.status.pod_status import PodState
from embedded.pod import LocalPod, PodFailure
from embedded.status_conditions import merge_conditions

logger = logging.getLogger(__name__)


class PodWorker:
    """The worker of one pod."""

    def __init__(self, pod: LocalPod, context: NodeContext) -> None:
        self.pod = pod
        self.wake_at = 0.0
        """The time at which the next sync is due if nothing changes before, in seconds since the epoch."""
        self.failures = 0
        """The number of syncs in a row that raised an unforeseen error."""
        self._context = context
        self._shutdown = PodShutdown(context.layout, pod.uid, context.shutdown)
        self._containers = PodContainers(pod, context, self._shutdown.signalled_runs)
        self._status = PodStatusWriter(pod, context.reporter)
        self._termination: Termination | None = None
        """The end of the pod, while it is to end."""
        self._restart_termination: Termination | None = None
        """The end of its containers before a restart in place, while they are to end and the pod is not."""
        self._failure: PodFailure | None = None

    def update(self, pod: LocalPod) -> None:
        """Take the pod as the API server shows it now."""
        self.pod = pod
        self.wake_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether the pod has to be synced."""
        return now >= self.wake_at or self._containers.have_changed()

    def note_log_lengths(self, now: float) -> None:
        """Record how long the logs of the containers that run are at this moment."""
        self._containers.note_log_lengths(now)

    @property
    def is_idle(self) -> bool:
        """Whether only the API server can change anything: no container runs, and no time is awaited."""
        return self.wake_at == float("inf") and not self._containers.alive_runs()

    @property
    def lacks_mark(self) -> bool:
        """Whether a container runs, and the API server does not show yet that the node's shutdown ends the pod."""
        if self.pod.is_deleting or self.pod.is_finished or not self._containers.alive_runs():
            return False
        return self._failure in (None, shutdown.FAILURE) and not self._shutdown.is_marked_in(self.pod)

    def ending_pod(self) -> EndingPod | None:
        """Return the pod as a pod for which the node's shutdown has to wait; None if the pod has ended."""
        if not self._containers.alive_runs() and (self._status.released or not self.pod.is_deleting):
            return None
        termination = self._termination
        job = (self.pod.manifest["metadata"].get("labels") or {}).get(labels.JOB_NAME, "")
        until = None if termination is None else termination.since + termination.grace
        return EndingPod(self.pod.namespace, self.pod.name, job, until)

    def sync(self, now: float) -> None:
        """Take the next steps for the pod. Raise OSError if the machine's disk fails."""
        self._containers.observe()
        if self._reject(now):
            return
        undecided_until = self._meet_shutdown(now)
        if undecided_until is not None:
            self.wake_at = undecided_until
            return
        self._publish_volumes()
        self._update_termination(now)
        if not (self.pod.is_finished or self._termination):
            self._show_ends(now)
            self._containers.begin_restart(self._restart_generation())
        self._update_restart_termination(now)
        containers = self._containers
        termination = self._termination or self._restart_termination
        plan = pod_lifecycle.plan(containers.spec, containers.histories, now, termination)
        containers.forget_problems()
        if not self.pod.is_finished or self._termination:
            for action in plan.actions:
                self._apply(action)
            if plan.actions:
                containers.observe()
            if self._termination:
                self._shutdown.record_signalled(self._termination.since, containers.signalled)
        self._report(now)
        containers.watch_memory(self.pod)
        containers.watch_ports(self.pod)
        self.wake_at = min(plan.wake_at, now + containers.check_seconds(), self._deadline())

    def _show_ends(self, now: float) -> None:
        """Report how containers ended that start again, before the next runs begin."""
        ends = pod_status.unseen_ends(self._containers.spec, self._containers.histories, self._status.content)
        if ends:
            state = replace(self._state(), ends_to_show=ends)
            before = self._status.with_other_conditions(self.pod)
            self._status.show(self.pod, pod_status.running_status(state, before, now))

    def _reject(self, now: float) -> bool:
        """Fail a pod that cannot run here, before any of its containers has run; return whether it was failed."""
        if self.pod.is_finished or self.pod.is_deleting or self._shutdown.is_closed or self._containers.have_run():
            return False
        failure = pod_requirements.unscheduled(self._status.content)
        failure = failure or pod_requirements.refusal(self.pod.spec, self.pod.demand, self._context.allocatable)
        if failure is None:
            return False
        self._status.write(self.pod, pod_status.rejected_status(failure, self._status.content, now))
        self.wake_at = float("inf")
        return True

    def _publish_volumes(self) -> None:
        """Update the files in the pod's volumes that show its metadata; log the files that the machine refuses."""
        if self.pod.is_finished or self.pod.is_deleting:
            return
        try:
            self._containers.publish_volumes(self.pod)
        except OSError as e:
            logger.warning("files in volumes of pod %s are not up to date: %s", self.pod, e)

    def _meet_shutdown(self, now: float) -> float | None:
        """Mark the pod if the node's shutdown ends it. Return the time until which no end may be reported, if there is
        such a time.
        """
        if self.pod.is_finished or self.pod.is_deleting or self._failure:
            return None
        containers = self._containers
        return self._shutdown.meet(containers.spec, containers.histories, containers.signalled, now)

    def _update_termination(self, now: float) -> None:
        """Decide whether the pod is to end, and with which grace."""
        grace = self._grace(now)
        asked_at = self._shutdown.mark.asked_at if self._shutdown.mark else None
        since = self._termination.since if self._termination else asked_at or now
        self._termination = None if grace is None else Termination(grace, since, self._containers.signalled)

    def _update_restart_termination(self, now: float) -> None:
        """Decide whether containers are to end for a restart in place, and with which grace.

        A new node process gives them the whole grace again: the process before may not have sent SIGTERM.
        """
        if not pod_lifecycle.awaits_restart(self._containers.spec, self._containers.histories):
            self._restart_termination = None
            return
        since = self._restart_termination.since if self._restart_termination else now
        self._restart_termination = Termination(self._spec_grace(), since, self._containers.signalled)

    def _restart_generation(self) -> str:
        return str(self.pod.annotations.get(labels.RESTART_CONTAINERS, ""))

    def _grace(self, now: float) -> float | None:
        """Return the seconds between SIGTERM and SIGKILL; None if the pod is not to end."""
        if self.pod.is_deleting:
            return 0.0 if self._shutdown.is_hurried else self.pod.deletion_grace
        grace = self._spec_grace()
        if self.pod.is_finished:
            return grace if self._containers.alive_runs() else None
        if self._failure is None and self._shutdown.ends(self._containers.spec, self._containers.histories):
            self._failure = shutdown.FAILURE
        if self._failure is shutdown.FAILURE and not self._shutdown.may_terminate(self.pod, now):
            return None
        if self._failure is None and now >= self._deadline() and not self._containers.has_ended():
            self._failure = PodFailure("DeadlineExceeded", "the pod ran longer than spec.activeDeadlineSeconds")
        return grace if self._failure else None

    def _spec_grace(self) -> float:
        return 0.0 if self._shutdown.is_hurried else float(self.pod.spec.get("terminationGracePeriodSeconds", 30))

    def _deadline(self) -> float:
        """Return when `spec.activeDeadlineSeconds` runs out; infinity if it does not."""
        seconds, started = self.pod.spec.get("activeDeadlineSeconds"), self._status.content.get("startTime")
        if not seconds or not started or self._failure or self._containers.has_ended():
            return float("inf")
        return timestamps.parse_seconds(started) + float(seconds)

    def _apply(self, action: Action) -> None:
        if not isinstance(action, StartContainer):
            self._containers.apply(action, self.pod)
            return
        if self._shutdown.is_closed:
            return
        try:
            self._containers.apply(action, self.pod)
        except pod.INVALID_SPEC_ERRORS as e:
            message = f"the embedded node cannot run container {action.container}: {e}"
            self._failure = self._failure or PodFailure("NotSupported", message)

    def _report(self, now: float) -> None:
        """Write the pod's status and release the resources that the pod no longer needs."""
        runs = self._containers.alive_runs()
        # A run that is just beginning is reported once it has begun, a moment later: this delay saves one write.
        beginning = self._containers.awaits_answer or any(run.started_at is None for _, run in runs)
        if not (beginning or self.pod.is_finished):
            status = pod_status.running_status(self._state(), self._status.with_other_conditions(self.pod), now)
            self._status.write(self.pod, status)
        elif self.pod.is_finished and self._restart_generation():
            self._report_late_restart(now)
        if not runs and (self.pod.is_finished or self._status.content.get("phase") in pod.FINISHED):
            self._context.devices.release(self.pod.uid)
        if not runs and self.pod.is_deleting and not self._status.released:
            self._status.release(self.pod)

    def _state(self) -> PodState:
        pod, histories, node = self.pod, self._containers.histories, self._context
        return PodState(
            containers=self._containers.spec,
            spec=pod.spec,
            histories=histories,
            last_output=messages(pod, histories, node.runs),
            start_problems=self._containers.start_problems,
            volume_problem=self._containers.volume_problem,
            stopping=self._termination is not None or self._failure is not None,
            failure=self._failure,
            missing_file=missing_file(pod, histories, node.runs, node.layout.pod(pod.uid)),
            port_problem=self._containers.port_problem(pod),
            restart_generation=self._restart_generation(),
        )

    def _report_late_restart(self, now: float) -> None:
        """Write that the pod had ended before its restart was requested, unless its status shows it."""
        before = self._status.with_other_conditions(self.pod)["conditions"]
        updates = pod_status.restart_conditions(self._state(), self.pod.phase)
        self._status.write(self.pod, {"conditions": merge_conditions(before, updates, now)})
