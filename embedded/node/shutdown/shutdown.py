"""The shutdown of the node: which pods it ends, and which ends are its work.

One rule: what a shutdown ends is nobody's failure. Every pod is marked, on disk and in the API server, before the first
container of any pod is asked to end: a pod that fails because another one was ended first is marked as well.

A session or a machine that ends sends SIGTERM to every process at once: to the node, to the shims, to the containers.
So a container may have ended before the node knows that it shuts down. Such an end is known by its shim, which was sent
the signal too, or by the signal that the container died of. It is not reported for a second: by then the node knows.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from embedded.layout import Layout
from embedded.node.runs.container_runs import Ending
from embedded.node.shutdown import shutdown_record
from embedded.node.shutdown.shutdown_record import Mark
from embedded.node.status import lifecycle, pod_status
from embedded.node.status.lifecycle import Containers, Histories
from embedded.node.status.pod_status import Verdict
from embedded.pod import LocalPod

logger = logging.getLogger(__name__)

VERDICT = Verdict(
    "Terminated", "Pod was terminated in response to imminent node shutdown.", disruption="TerminationByKubelet"
)
"""In the words of the kubelet."""
MARK_SECONDS = 10.0
"""How long the API server may take to show a mark; without it the mark on disk has to do."""
HURRIED_MARK_SECONDS = 2.0
HOLD_SECONDS = 1.0
"""How long an end that a shutdown may explain is held back."""
NEAR_SECONDS = 10.0
"""How far apart the signals of one shutdown may arrive."""
_STOP_SIGNALS = (1, 15)
"""SIGHUP, SIGTERM."""
Asked = frozenset[tuple[str, int]]
"""Container and restart of runs that the node itself has asked to end."""


class NodeShutdown:
    """Whether this node shuts down; shared between threads."""

    def __init__(self, layout: Layout, clock: Callable[[], float] = time.time) -> None:
        self._layout = layout
        self._clock = clock
        self.began = clock()
        """When this node began, in seconds since the epoch."""
        self._before = shutdown_record.last_began(layout)
        self.since: float | None = None
        """When it was told to, in seconds since the epoch; None while it was not."""
        self.released = False
        """Whether all pods are marked, and containers may be asked to end."""
        self.hurried = False
        """Whether what is left is to be killed."""

    def request(self) -> None:
        """The node is to shut down."""
        if self.since is None:
            self.since = self._clock()
            try:
                shutdown_record.begin(self._layout, self.since)
            except OSError as e:
                logger.warning("the shutdown is not on record: %s", e)

    def patience(self) -> float:
        """How long to wait for the API server to show marks, in seconds."""
        return HURRIED_MARK_SECONDS if self.hurried else MARK_SECONDS

    def explains(self, ending: Ending) -> bool:
        """Whether the end of the node, or of everything around it, is why a run ended: one that the node has not asked
        to end. Of what ended while no node was there, nothing but its shim can tell."""
        if not _is_suspicious(ending):
            return False
        when = ending.signalled_at or ending.finished_at
        if self.since is not None and when >= self.since - NEAR_SECONDS:
            return True
        if ending.finished_at >= self.began:
            return False
        return bool(ending.signalled_at) or (self._before is not None and when >= self._before - NEAR_SECONDS)


class PodShutdown:
    """What the node's shutdown means for one pod."""

    def __init__(self, layout: Layout, uid: str, node: NodeShutdown) -> None:
        self._layout = layout
        self._uid = uid
        self._node = node
        self.mark = shutdown_record.read(layout, uid)

    @property
    def closed(self) -> bool:
        """Whether no container of the pod may begin any more."""
        return self._node.since is not None or self.mark is not None

    @property
    def hurried(self) -> bool:
        """Whether its containers are to be killed at once."""
        return self._node.hurried

    @property
    def asked(self) -> Asked:
        """The runs that a node has asked to end."""
        return frozenset(self.mark.asked) if self.mark else frozenset()

    def meet(self, pod: Containers, histories: Histories, asked: Asked, now: float) -> float | None:
        """Mark a pod that has not ended, if the shutdown ends it or has ended it. Until when its end has to be held
        back, in seconds since the epoch; None if it need not be."""
        if self.mark is not None:
            return None
        found = list(_suspicious(pod, histories, asked))
        explained = [ending.signalled_at or ending.finished_at for ending in found if self._node.explains(ending)]
        if explained:
            self._write(Mark(min(explained)))
        elif self._node.since is not None and lifecycle.alive(histories):
            return self._mark(histories, now)
        elif found:
            until = max(ending.finished_at for ending in found) + HOLD_SECONDS
            return until if now < until <= now + HOLD_SECONDS else None
        return None

    def _mark(self, histories: Histories, now: float) -> float | None:
        """Times in the API are of whole seconds: a container that ended in this one has to be told from those that end
        after the mark."""
        ends = [ending.finished_at for history in histories.values() if (ending := lifecycle.last_ending(history))]
        if any(int(each) == int(now) for each in ends):
            return int(now) + 1.0
        self._write(Mark(now))
        return None

    def ends(self, pod: Containers, histories: Histories) -> bool:
        """Whether the pod's end is the shutdown's work: it was marked, and had not ended by itself before that."""
        return self.mark is not None and not lifecycle.ended_before(pod, histories, self.mark.at)

    def shown(self, pod: LocalPod) -> bool:
        """Whether the API server shows the mark."""
        wanted = {"type": pod_status.DISRUPTION_TARGET, "status": "True", "reason": VERDICT.disruption}
        return any(wanted.items() <= each.items() for each in pod_status.sound(pod.status.get("conditions")))

    def may_ask(self, pod: LocalPod, now: float) -> bool:
        """Whether containers may be asked to end now."""
        if self.mark is None or self._node.since is not None:
            return self._node.released
        return self.mark.asked_at is not None or self.shown(pod) or now - self._node.began >= MARK_SECONDS

    def note_asked(self, since: float, asked: Asked) -> None:
        """Record whose containers were asked to end, and since when."""
        if self.mark is not None and (self.mark.asked_at is None or not asked <= self.asked):
            self._write(replace(self.mark, asked_at=since, asked=tuple(sorted(asked))))

    def _write(self, mark: Mark) -> None:
        """A disk that takes no mark takes no end either: it will not be known, and that is nobody's failure."""
        self.mark = mark
        try:
            shutdown_record.write(self._layout, self._uid, mark)
        except OSError as e:
            logger.warning("the shutdown of pod %s is not on record: %s", self._uid, e)


def _suspicious(pod: Containers, histories: Histories, asked: Asked) -> Iterator[Ending]:
    """The ends of runs that a shutdown may explain."""
    for name, history in lifecycle.current(pod, histories).items():
        ending = lifecycle.last_ending(history)
        if ending is not None and (name, history[-1].restart) not in asked and _is_suspicious(ending):
            yield ending


def _is_suspicious(ending: Ending) -> bool:
    return bool(ending.signalled_at) or ending.signal in _STOP_SIGNALS
