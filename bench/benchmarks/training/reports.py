"""The cost of reports: pods that report to one coordinator, on an embedded stack.

One rule: each report comes on a connection of its own, as from pods. The coordinator's CPU is measured from outside,
first without reports and then with them, and both times the stack has nothing else to do.

The pods exist in the API server and never run: no scheduler binds them.
"""

import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from bench.benchmarks.training.report_sender import ReportingPod, ReportSender
from bench.errors import BenchError
from bench.report import Figures, milliseconds
from bench.support import stack
from bench.support.processes import room
from bench.support.stack import Size, Stack
from coordinator.local.stack_state import Files
from coordinator.reports import tokens
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from kube.api import Manifest
from queues import redis_keys
from queues.redis import connection

NAMESPACE = "default"
_MISSING_SCHEDULER = "bench-plays-the-node"
_SETTINGS = {"TORCHQ_POOL": "cpu=1000000", "TORCHQ_ADMISSION_TIMEOUT": "0"}
_QUIET_SECONDS = 5.0
"""The time after the last pod until the stack has nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    pods: int = 1_000
    jobs: int = 10
    every: float = 15.0
    """The seconds between two reports of a pod."""
    seconds: float = 60.0
    """The length of each of the two measurements."""


SHORT = Options(pods=50, jobs=2, every=5.0, seconds=5.0)


def run(options: Options) -> Figures:
    """Make the pods, and measure without and with reports. Raises BenchError if that fails."""
    with room(stack.STOP_SECONDS) as bench:
        running = stack.start(bench, Size(), _SETTINGS)
        for number in range(options.jobs):
            running.cluster.create(TORCHJOBS, job(number, options), NAMESPACE)
        bench.wait(lambda: len(_pods(running)) == options.pods, "the pods", 60 + options.pods / 20)
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
    container = {"name": "torch", "image": "none", "command": ["true"]}
    spec = {"containers": [container], "schedulerName": _MISSING_SCHEDULER}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": f"reports-{number}"},
        "spec": {"torchTaskSpecs": {"Worker": {"numTasks": pods, "template": {"spec": spec}}}},
    }


def _measure(running: Stack, sender: ReportSender | None, seconds: float) -> dict[str, float]:
    """Return the used CPU by process, in cores, and the picks and runs. Reports are sent if there is a sender."""
    before, counts = running.usage(), _counts(running)
    if sender is None:
        time.sleep(seconds)
    else:
        sender.send(seconds)
    after = running.usage()
    cores = {each: (after[each]["cpu_s"] - before[each]["cpu_s"]) / seconds for each in ("coordinator", "redis")}
    return {each: round(value, 4) for each, value in cores.items()} | {
        each: value - counts[each] for each, value in _counts(running).items()
    }


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
