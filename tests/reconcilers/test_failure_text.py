"""The cause of a failure that the pods' statuses do not show, read from the log of the pod that failed first."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crds.api_resources import PODS
from kube import errors
from reconcilers import failure_text
from tests.reconcilers.views.test_tracebacks import BEGIN, LOST, SHAPES, ranks, report
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task

RECORDED = (Path(__file__).parent / "views" / "torchrun_logs" / "after.txt").read_text()
EVERY = ("digits-master-0", "digits-worker-0", "digits-worker-1")
PERMANENT = {"Master": task(restartPolicy="Never"), "Worker": task(2, restartPolicy="Never", dependsOn=[])}


def kept(log: str) -> str:
    """Return the end of a log that a node keeps as the message of a container."""
    return log.encode()[-2048:].decode(errors="replace")


@dataclass
class Logs:
    """The logs by pod, and the names of the containers whose logs were read."""

    text: dict[str, str]
    read: list[str] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def __call__(self, pod: str, _: str, container: str, *, lines: int, previous: bool, **__: int) -> str:
        self.meanwhile()
        self.read.append(f"{pod}/{container}{' before' * previous}")
        return "\n".join(self.text[pod].splitlines()[-lines:])


def run(bench: Bench, logs: Logs) -> None:
    bench.counting.log_end = logs  # type: ignore[attr-defined]
    bench.submit(PERMANENT)
    bench.pick()
    bench.reconcile(times=2)
    bench.move("Running")
    bench.reconcile()


def fail(bench: Bench, name: str, log: str, second: int = 5) -> None:
    """Set the status of a failed pod, as its node does."""
    ended = {"exitCode": 1, "reason": "Error", "message": kept(log), "finishedAt": f"2026-01-02T03:04:{second:02}Z"}
    container = {"name": "torch", "state": {"terminated": ended}, "image": "", "imageID": "", "ready": False}
    status = {"phase": "Failed", "containerStatuses": [container | {"restartCount": 0}]}
    bench.cluster.patch(PODS, name, {"status": status}, bench.namespace, subresource="status")


def test_failure_message_takes_the_exception_from_the_pod_log(bench: Bench) -> None:
    logs = Logs({"digits-worker-1": RECORDED})
    run(bench, logs)
    fail(bench, "digits-worker-1", RECORDED)
    bench.reconcile()
    assert bench.true_condition("Failed") == (
        "PodFailed",
        f"pod digits-worker-1 failed with exit code 1 (Error): {SHAPES}",
    )
    assert logs.read == ["digits-worker-1/torch"]
    bench.reconcile()
    assert len(logs.read) == 1, "no logs are read for a job that has failed"


def test_pod_that_lost_its_peer_is_not_blamed_even_if_it_ended_first(bench: Bench) -> None:
    lost = ranks(0, f"{BEGIN}{LOST}") + "step\n" * 500 + report(0)
    logs = Logs({"digits-master-0": lost, "digits-worker-0": lost, "digits-worker-1": RECORDED})
    run(bench, logs)
    for second, name in enumerate(EVERY):
        fail(bench, name, logs.text[name], second)
    bench.reconcile()
    assert bench.true_condition("Failed") == (
        "PodFailed",
        f"pod digits-worker-1 failed with exit code 1 (Error): {SHAPES}",
    )
    assert logs.read == [f"{name}/torch" for name in EVERY]


def test_first_pod_is_blamed_when_all_pods_lost_a_peer(bench: Bench) -> None:
    lost = ranks(0, f"{BEGIN}{LOST}") + "step\n" * 500 + report(0)
    logs = Logs(dict.fromkeys(EVERY, lost))
    run(bench, logs)
    for name in EVERY:
        fail(bench, name, lost)
    bench.reconcile()
    assert bench.true_condition("Failed") == (
        "PodFailed",
        f"pod digits-master-0 failed with exit code 1 (Error): {LOST}",
    )
    assert len(logs.read) == 3 <= failure_text.MOST


def test_job_fails_with_exit_code_when_the_log_cannot_be_read(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def forbidden() -> None:
        raise errors.Forbidden("not allowed to read the log")

    caplog.set_level("INFO", "reconcilers")
    run(bench, Logs({}, meanwhile=forbidden))
    fail(bench, "digits-worker-1", RECORDED)
    bench.reconcile()
    reason, message = bench.true_condition("Failed")
    assert (reason, message.split(": ")[0]) == ("PodFailed", "pod digits-worker-1 failed with exit code 1 (Error)")
    assert "not allowed to read the log" in caplog.text


def test_condition_contains_the_whole_message_without_reading_logs(bench: Bench) -> None:
    logs = Logs({})
    run(bench, logs)
    whole = "KeyError: no such volume: " + " ".join(f"TORCHQ_VOLUME_DATA_{number}" for number in range(60))
    fail(bench, "digits-worker-0", BEGIN + whole)
    bench.reconcile()
    assert bench.true_condition("Failed")[1] == f"pod digits-worker-0 failed with exit code 1 (Error): {whole}"
    assert logs.read == [], "the status of the pod has the whole text"


def test_condition_contains_the_whole_message_of_a_rejected_pod(bench: Bench) -> None:
    run(bench, Logs({}))
    why = "volume data is mounted at /data: " + "a mount at an absolute path is not there on one machine, " * 5
    whole = why + "find the folder by TORCHQ_VOLUME_DATA"
    status = {"phase": "Failed", "reason": "NotSupported", "message": whole}
    bench.cluster.patch(PODS, "digits-worker-0", {"status": status}, bench.namespace, subresource="status")
    bench.reconcile()
    assert (
        bench.true_condition("Failed")[1] == f"pod digits-worker-0 failed without an exit code (NotSupported): {whole}"
    )


def test_job_fails_when_the_failed_pod_disappears_meanwhile(bench: Bench) -> None:
    run(bench, Logs({}))
    fail(bench, "digits-worker-1", RECORDED)
    bench.catch_up()
    bench.counting.before["get Pod"] = lambda: bench.remove("digits-worker-1")
    bench.reconcile()
    assert bench.job.status.phase == "Failed"
