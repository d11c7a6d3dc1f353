"""Reports of many pods, evenly over time, each on a connection of its own.

One rule: a report that is late is sent at once, and the others keep their times.
"""

import http.client
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson


@dataclass(frozen=True, slots=True)
class ReportingPod:
    """A pod, and where it reports with which token."""

    name: str
    path: str
    token: str = field(repr=False)


class ReportSender:
    """Sends the reports of pods to a port of this machine."""

    def __init__(self, port: int, pods: Sequence[ReportingPod], every: float) -> None:
        """`every` is the number of seconds between two reports of a pod."""
        self._port = port
        self._pods = pods
        self._every = every
        self.codes: Counter[int] = Counter()
        """The answers by their code; 0 is none."""
        self.seconds: list[float] = []
        """How long each report has waited for its answer."""

    def send(self, seconds: float) -> None:
        """Send reports for some seconds."""
        began, number, count = time.monotonic(), 0, len(self._pods)
        while (due := number / count * self._every) < seconds:
            time.sleep(max(0.0, began + due - time.monotonic()))
            before = time.monotonic()
            self.codes[self._report(self._pods[number % count], 10 * (1 + number // count))] += 1
            self.seconds.append(time.monotonic() - before)
            number += 1

    def _report(self, pod: ReportingPod, step: int) -> int:
        gauges = {"grad_norm": random.random(), "lr": 3e-4, "tokens_per_second": 1e5 * random.random()}
        body = {"pod": pod.name, "step": step, "samplesPerSecond": 81.5, "loss": random.random(), "gauges": gauges}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("POST", pod.path, orjson.dumps(body), {"Authorization": f"Bearer {pod.token}"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except OSError:
            return 0
        finally:
            connection.close()
