"""Sends the newest report of a pod to the coordinator (docs/elastic.md has the protocol).

One rule: nobody waits for it. A thread of its own sends, and drops whatever cannot be sent. The program ends without
waiting for the thread.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.request
from collections.abc import Mapping
from typing import Any

from torchq._training.json_values import Number, as_text

SECONDS = 5.5
"""The time between two reports. A coordinator takes one of each pod in 5 s."""
ANSWER_SECONDS = 10.0
MOST_GAUGES = 16
LONGEST_ANSWER = 4096
FIELDS = {"step": "step", "loss": "loss", "samples_per_second": "samplesPerSecond", "checkpoint": "checkpoint"}
"""The keywords with a field of their own. All others are gauges."""


def as_body(report: Mapping[str, Number], pod: str) -> dict[str, Any]:
    """Return the body of a report, which has a step. Of the gauges, the first 16 go."""
    gauges = {name: value for name, value in report.items() if name not in FIELDS}
    body: dict[str, Any] = {"pod": pod, **{field: report[name] for name, field in FIELDS.items() if name in report}}
    if gauges:
        body["gauges"] = dict(list(gauges.items())[:MOST_GAUGES])
    return body


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: another server must not get the token."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ReportSender:
    """A thread that sends the newest report, and what the coordinator has answered."""

    def __init__(self, access: tuple[str, str, str, str], seconds: float = SECONDS) -> None:
        """Create a sender; its thread starts with the first report. `access` is that of `report_access`."""
        url, token, job, self._pod = access
        self._url = f"{url.rstrip('/')}/v1/jobs/{job}/report"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._seconds = seconds
        self._condition = threading.Condition()
        self._closed = threading.Event()
        self._newest: dict[str, Any] | None = None
        self._checkpoint: Number | None = None
        self._thread: threading.Thread | None = None
        self.requested_save = 0
        """The number of the newest request to save that a coordinator has answered; 0: there was none."""

    def offer(self, report: Mapping[str, Number]) -> None:
        """Take a report with a step, in place of one that has not been sent yet."""
        # The answer to a request to save stays true, so it goes with every later report: one of them will arrive.
        self._checkpoint = report.get("checkpoint", self._checkpoint)
        known = {} if self._checkpoint is None else {"checkpoint": self._checkpoint}
        with self._condition:
            self._newest = as_body({**known, **report}, self._pod)
            self._condition.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._send_all, name="torchq-report", daemon=True)
                with contextlib.suppress(RuntimeError):  # the process may have no more threads, or be about to end
                    thread.start()
                    self._thread = thread

    def close(self) -> None:
        """End the thread, after the report that it sends now. Programs need not: they end without waiting for it."""
        self._closed.set()
        if self._thread is not None:
            with self._condition:
                self._newest = {}
                self._condition.notify()
            self._thread.join()

    def _send_all(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        while True:
            with self._condition:
                while self._newest is None:
                    self._condition.wait()
                body, self._newest = self._newest, None
            if self._closed.is_set():
                return
            with contextlib.suppress(Exception):  # whatever is wrong with the network, the training goes on
                self._send(opener, body)
            self._closed.wait(self._seconds)

    def _send(self, opener: urllib.request.OpenerDirector, body: dict[str, Any]) -> None:
        request = urllib.request.Request(self._url, as_text(body).encode(), self._headers)
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            number = json.loads(answer.read(LONGEST_ANSWER)).get("checkpoint", 0)
            self.requested_save = max(self.requested_save, int(number))
