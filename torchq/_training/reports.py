"""`torchq.report`: numbers of a training, while it runs.

One rule: a call never waits for the network and never fails for it. Only a wrong value raises, at the call. The end of
the program waits for a moment, so that its last report arrives.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from torchq._errors import Invalid
from torchq._training import marked_lines, surroundings
from torchq._training.json_values import Number, as_number, as_text, as_whole
from torchq._training.throttle import LEFT_OUT, Throttle

MOST_NAMES = 64
RESERVED = ("pod", "time", LEFT_OUT)
"""The names that whoever reads reports finds beside the numbers."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def report(**numbers: Any) -> int:
    """Report numbers of the training, as in `report(step=100, loss=0.3)`: a line on standard output that begins with
    `torchq-report:`. Return the number of the newest request to save, or 0; see `checkpointSeconds` of a TorchJob.

    Every report is printed, at once and in order. Only a flood is thinned: more than 1,000 reports of a process that
    come faster than 100 in a second. Of reports with the same names, the newest one is printed then, about 100 times in
    a second and at the end; `left_out` in a line is the number of those that were left out before it.

    In a pod that finds a coordinator, a thread also sends the newest report that has a `step`, one in 5.5 s, and the
    last one when the program ends. The first report that answers a request to save goes at once. The names `step`,
    `loss`, `samples_per_second` and `checkpoint` are known there. Of all other names, 16 go as gauges.

    A number may be a scalar of NumPy or PyTorch. Raises Invalid for NaN, infinity, what is no number, and a name
    that has other characters than letters, digits and _.
    """
    return _reporter.report(_checked(numbers))


def flush() -> None:
    """Print the reports that wait."""
    _reporter.flush()


def _checked(numbers: Mapping[str, object]) -> Mapping[str, Number]:
    if not 0 < len(numbers) <= MOST_NAMES:
        raise Invalid(f"report: takes from 1 to {MOST_NAMES} numbers, as in report(step=100, loss=0.3)")
    return {name: _checked_number(name, value) for name, value in numbers.items()}


def _checked_number(name: str, value: object) -> Number:
    if not _NAME.fullmatch(name):
        raise Invalid(f"report: the name {name!r:.80} must have at most 63 letters, digits and _, and no digit first")
    if name in RESERVED:
        raise Invalid(f"report: the name {name} is taken: whoever reads the reports finds the {name} of each there")
    if name in ("step", "checkpoint"):
        return as_whole(value, name)
    number = as_number(value, name)
    if name == "samples_per_second" and number < 0:
        raise Invalid(f"{name}: must not be negative, and is {number}")
    return number


class _Reporter:
    """Prints and sends the reports of a process. Thread-safe."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: a child after a fork has neither the thread of its parent nor its reports."""
        # A handler of a signal may report while its own thread does.
        self._lock = threading.RLock()
        self._throttle = Throttle()
        self._sender: Any = None
        self._is_ready = False

    def report(self, numbers: Mapping[str, Number]) -> int:
        with self._lock:
            sender = self._find_sender()
            _print(self._throttle.add(numbers, time.monotonic()))
            if sender is None:
                return 0
            if "step" in numbers:
                sender.offer(numbers)
            return int(sender.requested_save)

    def flush(self) -> None:
        """Print the reports that wait."""
        with self._lock:
            _print(self._throttle.take_all())

    def end(self) -> None:
        """Print the reports that wait, and send the last one."""
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


def _print(lines: Iterable[Mapping[str, Number]]) -> None:
    for line in lines:
        marked_lines.write(marked_lines.REPORT, as_text(line))


_reporter = _Reporter()
atexit.register(_reporter.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reporter.reset)
