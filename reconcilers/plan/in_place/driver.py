"""The contract of a driver of restarts in place: the driver requests a restart, and reports its progress.

One rule: pure. A request names its purpose, a number that no other restart has, so that another worker that continues
the restart makes no request twice.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from crds import labels, timestamps
from crds.torchjob.torchjob import CLOCK_SKEW, TorchJob
from reconcilers.pods import environment
from reconcilers.values import Action
from reconcilers.views.pod_view import PodView

UNPLANNED = 10**15
"""The first number of restarts of single pods, which do not change the generation."""

State = Literal["NotAsked", "InProgress", "Done", "Failed"]


@dataclass(frozen=True, slots=True)
class RestartProgress:
    """The progress of the restart of one pod's containers."""

    state: State
    why: str = ""
    remaining: float | None = None
    """The seconds until the time limit."""
    is_between: bool = False
    """Whether the run before has certainly ended, although the next one may not have begun."""

    @property
    def has_ended(self) -> bool:
        """Whether the run before the restart has ended, so that no other pod meets it."""
        return self.is_between or self.state == "Done"


NOT_ASKED = RestartProgress("NotAsked")


class Driver(Protocol):
    """One way to restart the containers of pods."""

    def ask(self, pods: tuple[PodView, ...], purpose: str) -> tuple[Action, ...]:
        """Return the actions that request a restart of the containers of pods."""

    def progress(self, pod: PodView, purpose: str) -> RestartProgress:
        """Return the progress of a pod's restart for a purpose; of any unfinished restart if the purpose is empty."""

    def done_notes(self, pod: PodView, purpose: str) -> Mapping[str, str | None]:
        """Return the annotations of a pod whose restart is done: the facts about the pod that would be lost
        otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """The time, and the time limit of a request; both in seconds."""

    now: float
    timeout: float

    def check(self, since: float | None, failed: str = "") -> RestartProgress:
        """Return the progress of a restart that was requested at a time, and that may have failed."""
        remaining = self.timeout - (self.now - since) if since is not None else 0.0
        if failed:
            return RestartProgress("Failed", failed)
        # A user may have written the time: a time far in the future would never pass.
        if remaining <= 0 or remaining > self.timeout + CLOCK_SKEW:
            return RestartProgress("Failed", f"not done within {self.timeout:g} s")
        return RestartProgress("InProgress", remaining=remaining)

    def request(self, text: str) -> dict[str, str]:
        """Return the annotations that request a restart, or record that a restart is requested."""
        return {labels.RESTART_CONTAINERS: text, labels.RESTART_REQUESTED_AT: timestamps.format_time(self.now)}


def purpose_of(generation: int, request: str) -> str:
    """Return the number of a restart: of the whole job in its generation, or of single pods for the owner's request of
    this id. People recognise the generation in the number."""
    if not request:
        return str(generation)
    return str(UNPLANNED + int(hashlib.sha256(request.encode()).hexdigest()[:12], 16))


def rendezvous(job: TorchJob) -> dict[str, str]:
    """Return the annotation by which pods of the job's generation meet; empty if they do not meet at a store."""
    return {labels.RENDEZVOUS_ID: environment.rendezvous_id(job)} if job.spec.rendezvous else {}


def group_by(pods: Iterable[PodView], key: Callable[[PodView], str]) -> dict[str, tuple[PodView, ...]]:
    """Return the pods by a text, so that pods with the same text are written together."""
    found: dict[str, tuple[PodView, ...]] = {}
    for pod in pods:
        found[key(pod)] = (*found.get(key(pod), ()), pod)
    return found
