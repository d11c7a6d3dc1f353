"""Every request that does not fit its job fails at once, with its reason, and the job does not change."""

from typing import Any

import pytest

from tests.support.reconcilers.requested import Requested, requested

BOUNDS = {"numMinReplicas": 2, "numMaxReplicas": 6, "replicaStep": 2}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "count 0": ({}, {"add": 0}, "InvalidCount", "the request says 0"),
    "negative count": ({}, {"remove": -1}, "InvalidCount", "the request says -1"),
    "no count": ({}, {"add": None}, "InvalidCount", "the request says no number"),
    "neither count nor names": ({}, {"names": []}, "InvalidCount", "or names of pods"),
    "count and names": ({}, {"remove": 1, "names": ["digits-worker-1"]}, "InvalidCount", "say one of them"),
    "unknown name": ({}, {"names": ["digits-worker-1", "digits-worker-7"]}, "InvalidPods", "digits-worker-7"),
    "pod of another job": ({}, {"names": ["other-worker-1"]}, "InvalidPods", "no such pods: other-worker-1"),
    "name twice": ({}, {"names": ["digits-worker-1", "digits-worker-1"]}, "InvalidPods", "named twice"),
    "lead": ({}, {"names": ["digits-worker-0"]}, "InvalidPods", "the other pods connect to it"),
    "critical": ({"worker": {"critical": True}}, {"names": ["digits-worker-1"]}, "InvalidPods", "is critical"),
    "critical by number": ({"worker": {"critical": True}}, {"remove": 1}, "InvalidPods", "critical task stay"),
    "every worker": ({}, {"remove": 4}, "EveryWorker", "at least one worker has to stay"),
    "more than all": ({}, {"remove": 2**31 - 1}, "EveryWorker", "at least one worker"),
    "below the minimum": ({"policy": BOUNDS}, {"remove": 3}, "BelowMinimum", "numMinReplicas is 2"),
    "below MinMember": ({"minMembers": {"Worker": 3}}, {"remove": 2}, "BelowMinimum", "minMembers.Worker is 3"),
    "above the maximum": ({"policy": BOUNDS}, {"add": 4}, "AboveMaximum", "numMaxReplicas is 6"),
    "above any maximum": ({}, {"add": 2**31 - 1}, "AboveMaximum", "numMaxReplicas is 8"),
    "off the step": ({"policy": BOUNDS}, {"add": 1}, "OffStep", "2 and more in steps of 2"),
}


@pytest.mark.parametrize(("spec", "request_spec", "reason", "message"), CASES.values(), ids=CASES)
def test_request_that_does_not_fit_fails_and_touches_nothing(
    spec: dict[str, Any], request_spec: dict[str, Any], reason: str, message: str
) -> None:
    job = requested(4, **spec)
    job.ask("r", **request_spec)
    before = job.manifest
    job.work()
    assert job.phase("r") == ("Failed", reason)
    assert message in job.state("r").message
    assert (job.manifest, job.writes, job.indexes()) == (before, 0, [0, 1, 2, 3])
    assert job.events == [f"ScaleRequestFailed: {job.view('r').label}: {reason}: {job.state('r').message}"]


def fail(job: Requested) -> None:
    job.want(4)


def _finished(job: Requested) -> None:
    assert job.manifest is not None
    job.manifest["status"] |= {"phase": "Succeeded", "conditions": [], "completionTime": "2026-01-02T03:04:05Z"}


def _not_elastic(job: Requested) -> None:
    assert job.manifest is not None
    del job.manifest["spec"]["torchElasticPolicy"]


def _invalid(job: Requested) -> None:
    assert job.manifest is not None
    job.manifest["status"] |= {"phase": "Failed", "conditions": []}


STATES = {
    "JobSuspended": lambda job: job.suspend(True),
    "JobFinished": _finished,
    "NotElastic": _not_elastic,
}


@pytest.mark.parametrize("change", [{"add": 1}, {"remove": 1}, {"names": ["digits-worker-1"]}], ids=str)
@pytest.mark.parametrize("reason", STATES)
def test_job_that_cannot_be_scaled_fails_its_requests(reason: str, change: dict[str, Any]) -> None:
    job = requested(4)
    STATES[reason](job)
    job.ask("r", **change)
    job.work()
    assert job.phase("r") == ("Failed", reason)
    assert job.known.spec.worker_count == 4


def test_size_that_only_the_server_refuses_fails_in_its_words() -> None:
    job = requested(4)
    job.allowed = range(1, 5)
    job.ask("r", add=1)
    job.work()
    assert job.phase("r") == ("Failed", "Refused")
    assert job.state("r").message == "numTasks must not be 5"
