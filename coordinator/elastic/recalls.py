"""The leader's step for jobs whose scheduler does not bind their gang: the step takes the room of these jobs
back while another job waits for it, and lets the jobs be tried again after a change.

One rule: what is remembered here only shortens or delays a wait, so a new leader that remembers nothing harms nobody.

    something changes             a job that was sent back before is tried again
    a node comes, or is better    at once
    a pod leaves its node         once a quarter of its pause is over: in a busy cluster pods end all the time
    nothing                       when its pause is over (`status.queue.notBefore`)

Until something changes, nobody gives room to a job that was sent back: two such jobs never take turns.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.settings import Settings
from coordinator.status_lane import JobLane
from crds import timestamps
from crds.keys import JobKey
from queues.pick_cycle import PickCycle
from queues.resizing.recall_search import HeldRoom

LOOK_SECONDS = 1.0
"""The least number of seconds between two looks."""
DELAY_SECONDS = 2.0
"""Changes so soon after a job was sent back may be older: its status has whole seconds, and a watch is behind."""
PART = 0.25
"""The part of a pause after which the end of a pod counts."""
LOOK = "the jobs that wait for their schedulers"


@dataclass(slots=True)
class Recalls:
    """The jobs that their schedulers refuse, during one term of the leader."""

    watches: Watches
    pick_cycle: PickCycle
    settings: Settings
    clock: Callable[[], float]
    lane: JobLane | None
    _looked_at: float = float("-inf")
    _nodes: tuple[int, float] = (0, float("-inf"))
    _pods: tuple[int, float] = (0, float("-inf"))
    """The last numbers of changes of nodes, and of ends of pods, and when they were seen to rise."""

    def __post_init__(self) -> None:
        self._nodes = self.watches.refused.nodes, float("-inf")
        self._pods = self.watches.refused.ended_pods, float("-inf")

    def step(self) -> None:
        """Take room back, and have jobs tried again, if it is time for a look. An error keeps no job from a pick."""
        now = self.clock()
        if abs(now - self._looked_at) < LOOK_SECONDS:
            return
        self._looked_at = now
        self._note_changes(now)
        refused = self.watches.refused.values() if len(self.watches.refused) else []
        with self.watches.errors.skipping(LOOK):
            waiting = {job.key: job for job in refused if job.admission is None}
            tried_again = frozenset(key for key, job in waiting.items() if self._has_changed(job, now))
            self._try_again(tried_again)
            if self.lane is not None and self.settings.refused_after:
                holding = [job for job in refused if _may_leave(job)]
                self._take_back(self.lane, holding, waiting.keys() - tried_again, now)

    def _note_changes(self, now: float) -> None:
        noticed = self.watches.refused
        self._nodes = self._nodes if self._nodes[0] == noticed.nodes else (noticed.nodes, now)
        self._pods = self._pods if self._pods[0] == noticed.ended_pods else (noticed.ended_pods, now)

    def _has_changed(self, job: JobView, now: float) -> bool:
        """Return whether a change since a job was sent back lets the job be tried again."""
        waits = job.waits
        if waits is None or not waits.waits_for_scheduler:
            return False
        since = waits.sent_back + DELAY_SECONDS
        is_late = now >= waits.sent_back + PART * (waits.until - waits.sent_back)
        return self._nodes[1] >= since or (self._pods[1] >= since and is_late)

    def _try_again(self, keys: frozenset[JobKey]) -> None:
        before = self.watches.rules().tried_again
        if keys != before:
            self.watches.rule_watches.judge(tried_again=keys)
            self.watches.mark(keys - before)

    def _take_back(self, lane: JobLane, holding: list[JobView], waiting: Set[JobKey], now: float) -> None:
        """Put into the statuses of jobs that they give their room back, if a waiting job could use the room."""
        leaving = [job for job in holding if _is_recalled(job, lane)]
        due = [job for job in holding if job not in leaving and now - _since(job) >= self.settings.refused_after]
        if not due:
            return
        due.sort(key=lambda job: (_since(job), job.key))
        found = self.pick_cycle.find_recalls([*map(_held, due)], [*map(_held, leaving)], waiting, now)
        for job in due:
            if job.key in found:
                lane.put(job.key, {"recalled": timestamps.format_time(_since(job))}, job.version)


def _may_leave(job: JobView) -> bool:
    """Return whether the scheduler of a job does not bind it, and the job holds room."""
    is_over = job.deleting or job.stopped or job.invalid
    return job.admission is not None and job.phase == "Admitted" and _since(job) > 0 and not is_over


def _since(job: JobView) -> float:
    return job.waits.refused_since if job.waits is not None else 0.0


def _is_recalled(job: JobView, lane: JobLane) -> bool:
    """Return whether a job is asked for its room, as its status says or is about to say."""
    is_asked = "recalled" in lane.waiting(job.key) or lane.is_under_way(job.key)
    return is_asked or (job.waits is not None and job.waits.recalled)


def _held(job: JobView) -> HeldRoom:
    assert job.admission is not None
    return HeldRoom(job.key, job.admission.queue, job.admission.charge)
