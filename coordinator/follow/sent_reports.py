"""The reports that training code sends and does not print, among the reports that it prints.

Code that reports with the progress protocol of Kubeflow Trainer prints nothing. A coordinator has the last report of
each pod, which is read again and again while a job is followed.

One rule: every report once. A coordinator that does not answer delays no printed report.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from coordinator.query import report_documents
from coordinator.query.questions import Document

T = TypeVar("T")
LOOK_SECONDS = 2.0
"""How often a followed job is asked for; a pod may report once in 5 s."""
_BUFFERED = 1_000
_PUT_SECONDS = 0.2
_NUMBERS = ("progressPercentage", "estimatedRemainingSeconds", "totalSteps")


class SentReports:
    """The reports that the pods of one job send. Safe to share between threads."""

    def __init__(self, job: str, read: Callable[[], Document], is_chosen: Callable[[str], bool]) -> None:
        """`job` is the name of the job, `read` reads what its pods report, and `is_chosen` takes the name of a pod
        without that of its job."""
        self._job = job
        self._read = read
        self._is_chosen = is_chosen
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, Any]] = {}

    def new(self) -> list[dict[str, Any]]:
        """Return the reports that have come since the last call."""
        found = self._read().get("pods", ())
        with self._lock:
            return [report for each in found if (report := self._take(each)) is not None]

    def _take(self, each: Document) -> dict[str, Any] | None:
        pod = each["pod"].removeprefix(f"{self._job}-")
        mark = each["reportedAt"], each.get("progressPercentage")
        if report_documents.PROTOCOL not in each or not self._is_chosen(pod) or self._seen.get(pod) == mark:
            return None
        self._seen[pod] = mark
        loss = {"loss": each["loss"]} if "loss" in each else {}
        numbers = {name: each[name] for name in _NUMBERS if name in each}
        return {
            "step": each["step"],
            **loss,
            **each.get("gauges", {}),
            **numbers,
            "pod": pod,
            "time": each["reportedAt"],
        }


def merge(printed: Iterable[T], sent: Callable[[], Iterable[T]], *, is_followed: bool) -> Iterator[T]:
    """Yield what is printed as it comes, and what `sent` returns: again and again if the job is followed, and once at
    the end of the output, before its error, if it ends with one."""
    merged = _Merged(printed, sent)
    for work in (merged.read, merged.look) if is_followed else (merged.read,):
        threading.Thread(target=work, name="reports", daemon=True).start()
    try:
        while not isinstance(item := merged.items.get(), _End):
            yield item
    finally:
        merged.ended.set()
    yield from sent()
    if item.error is not None:
        raise item.error


@dataclass(frozen=True, slots=True)
class _End:
    """The end of what is printed, with its error."""

    error: Exception | None


class _Merged(Generic[T]):
    """The items on their way from two threads to the one that yields them."""

    def __init__(self, printed: Iterable[T], sent: Callable[[], Iterable[T]]) -> None:
        self._printed = printed
        self._sent = sent
        self.items: queue.Queue[T | _End] = queue.Queue(_BUFFERED)
        self.ended = threading.Event()
        """Set once nobody takes items any more."""

    def read(self) -> None:
        """Put what is printed, to its end."""
        error = None
        try:
            for each in self._printed:
                if self.ended.is_set():
                    return
                self._put(each)
        except Exception as raised:
            error = raised
        self._put(_End(error))

    def look(self) -> None:
        """Put what was sent, until the end."""
        while not self.ended.wait(LOOK_SECONDS):
            for each in self._sent():
                self._put(each)

    def _put(self, item: T | _End) -> None:
        while not self.ended.is_set():
            try:
                self.items.put(item, timeout=_PUT_SECONDS)
            except queue.Full:
                continue
            return
