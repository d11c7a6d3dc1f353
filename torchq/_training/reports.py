"""`torchq.report`: numbers of a training, while it runs.

One rule: a call ends no training. A report never waits for the network and never fails because of it, and no value
raises an error. The end of the program waits for a moment, so that its last report arrives.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from torchq._training import marked_lines, readings, surroundings
from torchq._training.json_values import as_text
from torchq._training.throttle import Report, Throttle

log = logging.getLogger("torchq")


def report(values: Mapping[str, Any] | None = None, /, **numbers: Any) -> int:
    """Report numbers of the training, as in `report(step=100, loss=0.3)`: a line on standard output that begins with
    `torchq-report:`. Return the number of the newest request to save, or 0; see `checkpointSeconds` of a TorchJob.

    Every report is printed, at once and in order. Only a flood is thinned: more than 1,000 reports of a process that
    come faster than 100 in a second. Of reports with the same names, the newest report is printed then, about 100 times
    in a second and at the end; `left_out` in a line is the number of reports that were left out before it.

    In a pod that finds a coordinator, a thread also sends the newest report that has a `step`, one report in 5.5 s, and
    the last report when the program ends. The first report that answers a request to save is sent at once. The names
    `step`, `loss`, `samples_per_second` and `checkpoint` are known there. Of all other names, 16 are sent as gauges.

    A number may be a scalar of NumPy or PyTorch, and a name that is no keyword is passed in a map, as in
    `report({"val/loss": 0.2}, step=100)`. No value raises. A value that JSON cannot express becomes text ("NaN", "inf")
    or its shape, and no figures are computed from it; the logger `torchq` warns once for each kind.
    """
    return _reporter.report(values, numbers)


def flush() -> None:
    """Print the reports that wait."""
    _reporter.flush()


class _Reporter:
    """Prints and sends the reports of a process. Thread-safe."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: a child after a fork has neither the thread of its parent nor its reports."""
        # A handler of a signal may report while its own thread reports.
        self._lock = threading.RLock()
        self._throttle = Throttle()
        self._said: set[str] = set()
        self._sender: Any = None
        self._is_ready = False

    def report(self, values: object, numbers: Mapping[str, object]) -> int:
        given = {**values, **numbers} if isinstance(values, Mapping) else numbers
        report, notes = readings.read(given)
        if not given:
            notes["empty"] = "has no number; give some, as in report(step=100, loss=0.3)"
        with self._lock:
            self._warn(notes)
            sender = self._find_sender()
            if report:
                _print(self._throttle.add(report, time.monotonic()))
            if sender is None:
                return 0
            if sent := readings.sendable(report):
                sender.offer(sent)
            return int(sender.requested_save)

    def _warn(self, notes: Mapping[str, str]) -> None:
        """Warn about values that are not reported unchanged, once for each kind."""
        for kind, text in notes.items():
            if kind not in self._said:
                self._said.add(kind)
                with contextlib.suppress(Exception):  # a handler of the user's may raise
                    log.warning("report: %s (said once)", text)

    def flush(self) -> None:
        """Print the reports that wait."""
        with self._lock:
            _print(self._throttle.take_all())

    def end(self) -> None:
        """Print the reports that wait, and send the last report."""
        self.flush()
        if self._sender is not None:
            self._sender.finish()

    def _find_sender(self) -> Any | None:
        if not self._is_ready:
            self._is_ready = True
            access = surroundings.report_access(os.environ)
            if access is not None and surroundings.is_first_of_pod(os.environ):
                # Loaded here, because an HTTP client takes longer to load than all else of this package.
                self._sender = importlib.import_module("torchq._training.report_sender").ReportSender(access)
        return self._sender


def _print(lines: Iterable[Report]) -> None:
    for line in lines:
        marked_lines.write(marked_lines.REPORT, as_text(line))


_reporter = _Reporter()
atexit.register(_reporter.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reporter.reset)
