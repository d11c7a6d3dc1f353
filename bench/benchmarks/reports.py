"""The cost of reports: pods that report to one coordinator, on an embedded stack.

One rule: each report comes on its own connection, as the reports of pods do. A report that is late is sent at once, and
the others keep their times. The coordinator's CPU is measured from outside, first without reports and then with them,
and both times the stack has nothing else to do.

The pods exist in the API server and never run: no scheduler binds them.
"""

import http.client
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures, milliseconds
from bench.support import manifests, stack
from bench.support.stack import Stack
from coordinator.local.stack_state import Files
from coordinator.reports import tokens
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from kube.api import Manifest
from queues import redis_keys
from queues.redis import connection

NAMESPACE = "default"
_SETTINGS = {"TORCHQ_POOL": "cpu=1000000", "TORCHQ_ADMISSION_TIMEOUT": "0"}
_QUIET_SECONDS = 5.0
"""The time after the last pod until the stack has nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    pods: int = option(1_000)
    jobs: int = option(10)
    every: float = option(15.0, "between reports of a pod", least=5)
    seconds: float = option(60.0, least=5)
    """The length of each of the two measurements."""


SHORT = Options(pods=50, jobs=2, every=5.0, seconds=5.0)


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
        with (
            suppress(OSError),
            closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection,
        ):
            connection.request("POST", pod.path, orjson.dumps(body), {"Authorization": f"Bearer {pod.token}"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        return 0


def run(options: Options) -> Figures:
    """Make the pods, and measure without and with reports. Raises BenchError on failure."""
    with stack.running(settings=_SETTINGS) as running:
        for number in range(options.jobs):
            running.cluster.create(TORCHJOBS, job(number, options), NAMESPACE)
        running.bench.wait(lambda: len(_pods(running)) == options.pods, "the pods", 60 + options.pods / 20)
        time.sleep(_QUIET_SECONDS)
        sender = _sender(running, options)
        silent, reporting = _measure(running, None, options.seconds), _measure(running, sender, options.seconds)
        if sender.codes.keys() != {HTTPStatus.OK}:
            raise BenchError(f"not every report was taken: {dict(sender.codes)}")
        return {
            "reports_per_s": round(len(sender.seconds) / options.seconds, 1),
            "coordinator_cpu_cores": reporting["coordinator"],
            "coordinator_cpu_cores_silent": silent["coordinator"],
            "cost_cpu_cores": round(reporting["coordinator"] - silent["coordinator"], 4),
            "redis_cpu_cores": reporting["redis"],
            "redis_cpu_cores_silent": silent["redis"],
            "answer_ms": milliseconds(sender.seconds),
            "picks": int(reporting["picks"]),
            "runs": int(reporting["runs"]),
            "runs_silent": int(silent["runs"]),
            "redis_bytes_per_pod": _memory(running) // options.pods,
            "log_troubles": running.troubles(),
        }


def job(number: int, options: Options) -> Manifest:
    """Return a job with its part of the pods."""
    pods = options.pods // options.jobs + (number < options.pods % options.jobs)
    return manifests.job(f"reports-{number}", "", {"Worker": manifests.task(numTasks=pods)})


def _measure(running: Stack, sender: ReportSender | None, seconds: float) -> dict[str, float]:
    """Return the used CPU by process, in cores, and the picks and runs. Reports are sent if there is a sender."""
    before, counts = _cpu(running), _counts(running)
    if sender is None:
        time.sleep(seconds)
    else:
        sender.send(seconds)
    cores = {name: round((after - before[name]) / seconds, 4) for name, after in _cpu(running).items()}
    return cores | {name: after - counts[name] for name, after in _counts(running).items()}


def _cpu(running: Stack) -> dict[str, float]:
    pids = running.pids()
    return {name: stack.usage(pids[name])["cpu_s"] for name in ("coordinator", "redis")}


def _counts(running: Stack) -> dict[str, int]:
    """Return the number of picks so far, and of runs of workers."""
    with connection.translate_errors(running.redis):
        picks: Any = running.redis.get(f"{redis_keys.PREFIX}pick")
        runs: Any = running.redis.hget(redis_keys.TALLY, redis_keys.RUNS)
    return {"picks": int(picks or 0), "runs": int(runs or 0)}


def _pods(running: Stack) -> list[Manifest]:
    return running.cluster.list(PODS, NAMESPACE, label_selector=labels.JOB_UID).items


def _sender(running: Stack, options: Options) -> ReportSender:
    """Return the sender of the reports of all pods."""
    files = Files(running.data)
    key = tokens.read(str(files.report_key))
    if key is None:
        raise BenchError("the stack has made no key for reports")
    pods = []
    for pod in _pods(running):
        name, marks = pod["metadata"]["name"], pod["metadata"]["labels"]
        path = f"/v1/jobs/{NAMESPACE}/{marks[labels.JOB_NAME]}/report"
        pods.append(ReportingPod(name, path, key.token(marks[labels.JOB_UID])))
    return ReportSender(int(files.report_port.read_text()), pods, options.every)


def _memory(running: Stack) -> int:
    """Return the bytes that all reports take in Redis."""
    names = connection.key_names(running.redis, f"{redis_keys.REPORTS}*")
    with connection.translate_errors(running.redis):
        sizes: list[Any] = [running.redis.memory_usage(name, samples=0) for name in names]
    return sum(map(int, sizes))
