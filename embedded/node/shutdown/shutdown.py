"""The shutdown of the node: which pods it ends, and which ends of containers it explains.

One rule: a pod that a shutdown ends has not failed by itself. Every pod is marked, on disk and in the API server,
before the first container of any pod is sent SIGTERM. So a pod that fails because another pod ended is marked as well.

A session or a machine that ends sends SIGTERM to every process at once: to the node, to the shims, to the containers.
So a container may have ended before the node knows that it shuts down. Two facts reveal such an end: the shim received
the signal too, or the container died of that signal. The report of such an end is held back for a second, until the
node knows the reason.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from embedded.layout import Layout
from embedded.node.runs.container_runs import Ending
from embedded.node.shutdown import shutdown_record
from embedded.node.shutdown.shutdown_record import Mark
from embedded.node.status import pod_lifecycle
from embedded.node.status.pod_lifecycle import Containers, Histories
from embedded.node.status.pod_status import DISRUPTION_TARGET
from embedded.pod import LocalPod, PodFailure
from embedded.status_conditions import well_formed

logger = logging.getLogger(__name__)

FAILURE = PodFailure(
    "Terminated", "Pod was terminated in response to imminent node shutdown.", disruption="TerminationByKubelet"
)
"""Reason, message and disruption of a pod that a shutdown ends, as the kubelet writes them."""
MARK_SECONDS = 10.0
"""The time to wait until the API server shows a mark. After that the mark on disk is enough."""
HURRIED_MARK_SECONDS = 2.0
HOLD_SECONDS = 1.0
"""The time for which the report of an end is held back if a shutdown may explain the end."""
NEAR_SECONDS = 10.0
"""The largest time between the signals of one shutdown."""
_STOP_SIGNALS = (1, 15)
"""The numbers of SIGHUP and SIGTERM."""
SignalledRuns = frozenset[tuple[str, int]]
"""Container and restart of the runs to which the node itself has sent SIGTERM."""


class NodeShutdown:
    """The state of this node's shutdown; several threads share it."""

    def __init__(self, layout: Layout, clock: Callable[[], float] = time.time) -> None:
        self._layout = layout
        self._clock = clock
        self.began = clock()
        """The time at which this node began, in seconds since the epoch."""
        self._before = shutdown_record.last_shutdown(layout)
        self.since: float | None = None
        """The time at which the shutdown was requested, in seconds since the epoch; None without a request."""
        self.released = False
        """Whether all pods are marked, so that containers may be sent SIGTERM."""
        self.hurried = False
        """Whether the containers that still run are to be killed."""

    def request(self) -> None:
        """Begin the shutdown of the node, and record that on disk."""
        if self.since is None:
            self.since = self._clock()
            try:
                shutdown_record.begin(self._layout, self.since)
            except OSError as e:
                logger.warning("the node's shutdown could not be written to disk: %s", e)

    def patience(self) -> float:
        """Return how long to wait for the API server to show marks, in seconds."""
        return HURRIED_MARK_SECONDS if self.hurried else MARK_SECONDS

    def explains(self, ending: Ending) -> bool:
        """Return whether a shutdown of the node, the session or the machine ended a run that the node did not end.

        If the run ended while no node process lived, only its shim's record of the signal can show that cause.
        """
        if not _is_suspicious(ending):
            return False
        when = ending.signalled_at or ending.finished_at
        if self.since is not None and when >= self.since - NEAR_SECONDS:
            return True
        died_at = when if ending.signal in _STOP_SIGNALS else ending.finished_at  # what it left may end much later
        if died_at >= self.began:
            return False
        return bool(ending.signalled_at) or (self._before is not None and when >= self._before - NEAR_SECONDS)


class PodShutdown:
    """The part of the node's shutdown that concerns one pod."""

    def __init__(self, layout: Layout, uid: str, node: NodeShutdown) -> None:
        self._layout = layout
        self._uid = uid
        self._node = node
        self.mark = shutdown_record.read(layout, uid)

    @property
    def is_closed(self) -> bool:
        """Whether no more containers of the pod may start."""
        return self._node.since is not None or self.mark is not None

    @property
    def is_hurried(self) -> bool:
        """Whether the pod's containers are to be killed at once."""
        return self._node.hurried

    @property
    def signalled_runs(self) -> SignalledRuns:
        """The runs to which a node has sent SIGTERM."""
        return frozenset(self.mark.asked) if self.mark else frozenset()

    def meet(self, pod: Containers, histories: Histories, signalled_runs: SignalledRuns, now: float) -> float | None:
        """Mark a pod that has not finished, if the shutdown ends the pod or has ended it.

        Return the time until which the report of its end is to be held back, in seconds since the epoch, if there is
        such a time.
        """
        if self.mark is not None:
            return None
        endings = list(_suspicious_endings(pod, histories, signalled_runs))
        explained = [ending.signalled_at or ending.finished_at for ending in endings if self._node.explains(ending)]
        if explained:
            self._write(Mark(min(explained)))
        elif self._node.since is not None and pod_lifecycle.is_alive(histories):
            return self._mark(histories, now)
        elif endings:
            until = max(ending.finished_at for ending in endings) + HOLD_SECONDS
            return until if now < until <= now + HOLD_SECONDS else None
        return None

    def _mark(self, histories: Histories, now: float) -> float | None:
        """Mark the pod now, or return the time at which to try again.

        Times in the API are whole seconds. So a pod is not marked in a second in which one of its containers ended:
        such an end could not be distinguished from ends after the mark.
        """
        times = [ending.finished_at for history in histories.values() if (ending := pod_lifecycle.last_ending(history))]
        if any(int(time) == int(now) for time in times):
            return int(now) + 1.0
        self._write(Mark(now))
        return None

    def ends(self, pod: Containers, histories: Histories) -> bool:
        """Return whether the shutdown ends the pod: the pod was marked, and had not ended by itself before."""
        return self.mark is not None and not pod_lifecycle.has_ended_before(pod, histories, self.mark.at)

    def is_marked_in(self, pod: LocalPod) -> bool:
        """Return whether the pod, as the API server shows it, has the mark."""
        mark = {"type": DISRUPTION_TARGET, "status": "True", "reason": FAILURE.disruption}
        return any(mark.items() <= item.items() for item in well_formed(pod.status.get("conditions")))

    def may_terminate(self, pod: LocalPod, now: float) -> bool:
        """Return whether containers may be sent SIGTERM now."""
        if self.mark is None or self._node.since is not None:
            return self._node.released
        return self.mark.asked_at is not None or self.is_marked_in(pod) or now - self._node.began >= MARK_SECONDS

    def record_signalled(self, since: float, runs: SignalledRuns) -> None:
        """Record which runs were sent SIGTERM, and since when."""
        if self.mark is not None and (self.mark.asked_at is None or not runs <= self.signalled_runs):
            self._write(replace(self.mark, asked_at=since, asked=tuple(sorted(runs))))

    def _write(self, mark: Mark) -> None:
        """Write the mark to disk, if the disk has room for the mark.

        A disk that takes no mark takes no record of the container's end either, and an unknown end is no failure.
        """
        self.mark = mark
        try:
            shutdown_record.write(self._layout, self._uid, mark)
        except OSError as e:
            logger.warning("the shutdown of the pod with uid %s could not be written to disk: %s", self._uid, e)


def _suspicious_endings(pod: Containers, histories: Histories, signalled_runs: SignalledRuns) -> Iterator[Ending]:
    """Yield the ends of runs that a shutdown may explain."""
    for name, history in pod_lifecycle.runs_since_restart(pod, histories).items():
        ending = pod_lifecycle.last_ending(history)
        if ending is not None and (name, history[-1].restart) not in signalled_runs and _is_suspicious(ending):
            yield ending


def _is_suspicious(ending: Ending) -> bool:
    return bool(ending.signalled_at) or ending.signal in _STOP_SIGNALS
