"""Sends the newest report of a pod to the coordinator (docs/elastic.md has the protocol).

One rule: the training never waits for the network. A separate thread sends the reports at its own pace, and a report
that cannot be sent does no harm. Two reports do not wait for their turn: the answer to a request to save, once for each
request, and the last report, for which the end of the program waits `LAST_SECONDS` at most.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from torchq._training.json_values import as_text
from torchq._training.throttle import Report

SECONDS = 5.5
"""The time between two reports. A coordinator takes one of each pod in 5 s."""
ANSWER_SECONDS = 10.0
LAST_SECONDS = 2.0
"""How long the end of the program waits for its last report."""
TOO_EARLY, SERVER_FAILS = 429, 500
"""The answers after which a report may be taken later: this one, and those from here on."""
MOST_GAUGES = 16
LONGEST_ANSWER = 4096
FIELDS = {"step": "step", "loss": "loss", "samples_per_second": "samplesPerSecond", "checkpoint": "checkpoint"}
"""The keywords with a field of their own. All others are gauges."""


def as_body(report: Report, pod: str) -> dict[str, Any]:
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
    """A thread that sends the newest report, and the answers of the coordinator."""

    def __init__(self, access: tuple[str, str, str, str], seconds: float = SECONDS) -> None:
        """Create a sender; its thread starts with the first report. `access` is the result of `report_access`."""
        url, token, job, self._pod = access
        self._url = f"{url.rstrip('/')}/v1/jobs/{job}/report"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._seconds = seconds
        self._condition = threading.Condition()
        self._newest: dict[str, Any] | None = None
        self._checkpoint: int | None = None
        self._answered = 0
        """The number of the newest request to save that was answered at once."""
        self._is_urgent = False
        self._ends = False
        self._thread: threading.Thread | None = None
        self.requested_save = 0
        """The number of the newest request to save that a coordinator has answered; 0: there was none."""

    def offer(self, report: Report) -> None:
        """Take a report with a step, in place of a report that has not been sent yet."""
        # The answer to a request to save stays true, so the answer is part of every later report: one of the reports
        # will arrive.
        self._checkpoint = report.get("checkpoint", self._checkpoint)
        known = {} if self._checkpoint is None else {"checkpoint": self._checkpoint}
        with self._condition:
            self._newest = as_body({**known, **report}, self._pod)
            if self._answered < self.requested_save <= report.get("checkpoint", 0):
                self._answered, self._is_urgent = self.requested_save, True
            self._condition.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._send_all, name="torchq-report", daemon=True)
                with contextlib.suppress(RuntimeError):  # the process may have no more threads, or be about to end
                    thread.start()
                    self._thread = thread

    def finish(self, seconds: float = LAST_SECONDS) -> None:
        """Send the waiting report at once, as the last one, and end the thread. Wait for the thread for some
        seconds."""
        with self._condition:
            self._ends = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(seconds)

    def _send_all(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        turn, is_last = 0.0, False
        while not is_last:
            body, is_last = self._take(turn)
            if body is not None and not self._is_settled(opener, {**body, "last": True} if is_last else body):
                self._put_back(body)
            turn = time.monotonic() + self._seconds

    def _take(self, turn: float) -> tuple[dict[str, Any] | None, bool]:
        """Wait for the next report and for its turn. Return the report, and whether it is the last report."""
        with self._condition:
            self._condition.wait_for(lambda: self._newest is not None or self._ends)
            self._condition.wait_for(lambda: self._is_urgent or self._ends, max(0.0, turn - time.monotonic()))
            body, self._newest, self._is_urgent = self._newest, None, False
            return body, self._ends

    def _put_back(self, body: dict[str, Any]) -> None:
        """Let a report wait for another turn, unless a newer report waits."""
        with self._condition:
            if self._newest is None:
                self._newest = body

    def _is_settled(self, opener: urllib.request.OpenerDirector, body: dict[str, Any]) -> bool:
        """Send a report. Return whether the report needs no further try; False if the report may arrive another
        time."""
        try:
            self._send(opener, body)
        except urllib.error.HTTPError as error:
            return error.code != TOO_EARLY and error.code < SERVER_FAILS
        except OSError:
            return False
        except Exception:
            return True  # whatever is wrong, the training goes on
        return True

    def _send(self, opener: urllib.request.OpenerDirector, body: dict[str, Any]) -> None:
        request = urllib.request.Request(self._url, as_text(body).encode(), self._headers)
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            number = json.loads(answer.read(LONGEST_ANSWER)).get("checkpoint", 0)
            self.requested_save = max(self.requested_save, int(number))
