"""The Events that report to a job's owner, and the thread that writes the Events of a normal life.

Nobody waits for the Events of a normal life. These Events have a budget of their own, and an Event beyond the budget is
dropped: in a burst of jobs, all other writes are more important. Namespaces share the budget evenly, so that the jobs
of one do not drop the Events of another.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from crds import events
from crds.api_resources import EVENTS
from crds.keys import JobKey
from crds.labels import GROUP
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.values import EmitEvent

CHANGED = "PodChanged"
REMEDY = "leave pods of torchq out of that webhook, or let it add to them only"
PER_SECOND = 5.0
AT_ONCE = 50
"""The Events that one process may write together before `PER_SECOND` applies, and that may wait to be written."""

SLOWED = 10.0
"""What an Event costs of the budget beyond itself for each second that the API server took for the one before: where it
is slow, all other writes are more important."""
_FULL_SECONDS = AT_ONCE / PER_SECOND
"""For how long a namespace has a part of the budget after its latest Event: until an empty budget is full again."""

log = logging.getLogger(__name__)


def manifest(key: JobKey, event: EmitEvent, now: float, *, owned: bool = False) -> Manifest:
    """Return the Event on a job."""
    return events.on_job(key, event.reason, event.message, now, warning=event.warning, owned=owned)


def pod_changed(sent: Manifest, made: Manifest) -> EmitEvent | None:
    """Return the Event about a pod that an admission webhook has made in another form than requested; None if it is
    fine. The additions of a webhook to a pod are not checked."""
    found = [*_lost_labels(sent, made), *_policy(sent, made)]
    if not found:
        return None
    name = sent["metadata"]["name"]
    return EmitEvent(CHANGED, f"pod {name}: an admission webhook {', and '.join(found)}: {REMEDY}", warning=True)


def _lost_labels(sent: Manifest, made: Manifest) -> list[str]:
    wanted, given = sent["metadata"].get("labels") or {}, made["metadata"].get("labels") or {}
    lost = sorted(name for name, value in wanted.items() if name.startswith(GROUP) and given.get(name) != value)
    return [f"has replaced labels ({', '.join(lost)}), by which torchq finds it"] if lost else []


def _policy(sent: Manifest, made: Manifest) -> list[str]:
    wanted, given = ((each.get("spec") or {}).get("restartPolicy") for each in (sent, made))
    return (
        [f"has changed restartPolicy {wanted} to {given}, which decides who restarts its containers"]
        if wanted != given
        else []
    )


class EventBudget:
    """The Events that each namespace may still write: a token bucket for each namespace that had an Event in the last
    10 s. All buckets are equal parts of the budget."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """The Events that a namespace has left, and the time of its latest Event."""

    def takes(self, namespace: str, now: float, price: float = 1.0) -> bool:
        """Take one Event from the part of a namespace; return whether one was left. `now` never goes back. An Event may
        cost more than one: it is written, and those after it wait longer, until as many as the part holds twice are
        due."""
        self._left = {name: each for name, each in self._left.items() if now - each[1] < _FULL_SECONDS}
        before = self._left.get(namespace)
        parts = len(self._left) + (before is None)
        most = max(1.0, AT_ONCE / parts)
        left, since = before or (most, now)
        left = min(most, left + (now - since) * PER_SECOND / parts)
        self._left[namespace] = (max(left - price, -most) if left >= 1.0 else left), now
        return left >= 1.0


class LifeEventWriter:
    """Writes Events on a thread of its own; safe to share between threads."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives the times of Events, `elapsed` gives the times of the budget."""
        self._cluster, self._clock, self._elapsed = cluster, clock, elapsed
        self._lock = threading.Lock()
        self._budget = EventBudget()
        self._waiting = 0
        self._took = 0.0
        """The seconds that the API server took for the last Event."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="life-events")

    def tell(self, key: JobKey, event: EmitEvent) -> None:
        """Write an Event on a job soon, or drop it. The method neither waits nor raises an error."""
        if self._takes(key.namespace):
            with contextlib.suppress(RuntimeError):  # the writer was closed
                self._executor.submit(self._write, key, event, self._clock())

    @property
    def _price(self) -> float:
        return min(1.0 + SLOWED * self._took, AT_ONCE)

    def close(self) -> None:
        """Drop the Events that wait."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _takes(self, namespace: str) -> bool:
        """Take a place for one Event of a namespace; return whether a place was free."""
        with self._lock:
            if self._waiting >= AT_ONCE or not self._budget.takes(namespace, self._elapsed(), self._price):
                return False
            self._waiting += 1
            return True

    def _write(self, key: JobKey, event: EmitEvent, now: float) -> None:
        began = self._elapsed()
        try:
            self._cluster.create(EVENTS, manifest(key, event, now, owned=True), key.namespace)
        except errors.ClusterError as error:
            log.debug("%s: the Event %s could not be created: %s", key, event.reason, error)
        finally:
            with self._lock:
                self._waiting -= 1
                self._took = self._elapsed() - began
