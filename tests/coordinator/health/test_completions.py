"""A job whose pods completed while no worker looked does not train a second time, on an embedded API server."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.cache.views import PodView
from coordinator.health.completions import REFUSED_SECONDS, WORKERS_SECONDS, Completions
from coordinator.leader.status_writer import RETRY_SECONDS
from crds import timestamps
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.status import Completion
from kube import errors
from tests.support.coordinator.desk import Clock, Desk, task


class Absence:
    """A running job whose worker is away, and the leader that looks at this job."""

    def __init__(self, desk: Desk, namespace: str, clock: Clock) -> None:
        self.desk, self.namespace, self.clock = desk, namespace, clock
        desk.queue("a")
        desk.begin()
        self.key = self.run("train", Master=task(), Worker=task() | {"dependsOn": []})
        self.leader = self.new_leader()
        self.leader.look()

    def run(self, name: str, **tasks: object) -> JobKey:
        key = self.desk.submit(name, self.namespace, "a", tasks=tasks)
        self.desk.until(lambda: self.desk.pods_of(key))
        self.desk.move(key, "Running")
        self.desk.until(lambda: self.desk.phase(key) == "Running")
        return key

    def new_leader(self) -> Completions:
        return Completions(self.desk.watching, self.desk.statuses.jobs, self.desk.watches, self.clock, self.clock)

    def report(self, name: str, **status: Any) -> None:
        """Write the status of a pod, as its node does."""
        self.desk.cluster.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    def end_container(self, name: str, ago: float = 0.0, message: str = "") -> None:
        """Report that the main container of a running pod has ended with exit code 0."""
        at = timestamps.format_time(self.clock() - ago)
        state = {"terminated": {"exitCode": 0, "finishedAt": at, "message": message}}
        main = {"name": "torch", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        self.report(name, phase="Running", containerStatuses=[main])

    def end(self, phase: str, key: JobKey | None = None) -> None:
        """End the pods of a job, and wait until the leader's cache shows their end."""
        job = key or self.key
        self.desk.move(job, phase)
        expected = phase == "Succeeded"
        self.wait(lambda: all(pod.completed == expected and not pod.running for pod in self.pods(job)))

    def pods(self, key: JobKey) -> list[PodView]:
        return list(self.desk.watches.job_pods(key))

    def wait(self, condition: Callable[[], object]) -> None:
        self.desk.until(condition, worker=False)

    def delete_pods(self) -> None:
        for name in self.desk.pods_of(self.key):
            self.desk.cluster.delete(PODS, name, self.namespace, grace_period_seconds=0)
        self.wait(lambda: not self.pods(self.key))

    def look(self, leader: Completions | None = None) -> int:
        """Let the leader look twice. Between the looks passes the time within which workers must have acted."""
        found = leader or self.leader
        written = self.look_once(found)
        self.clock.step(WORKERS_SECONDS)
        return written + self.look_once(found)

    def look_once(self, leader: Completions | None = None) -> int:
        """Let the leader look once, and write the statuses that it puts. Return the number of statuses that were
        written.
        """
        before = self.desk.watching.calls["patch TorchJob"]
        (leader or self.leader).look()
        self.desk.statuses.serve(self.desk.statuses.jobs)
        return self.desk.watching.calls["patch TorchJob"] - before

    def completed(self) -> Completion | None:
        return self.desk.job(self.key).status.completed


@pytest.fixture
def absence(desk: Desk, namespace: str, clock: Clock) -> Absence:
    return Absence(desk, namespace, clock)


def test_job_whose_pods_are_deleted_before_a_worker_looks_succeeds(absence: Absence) -> None:
    absence.end("Succeeded")
    assert absence.look() == 1
    assert absence.completed() == Completion(attempt=1, restart_generation=0)
    absence.delete_pods()
    absence.desk.until(lambda: absence.desk.phase(absence.key) == "Succeeded")
    assert absence.completed() is None
    assert absence.desk.pods_of(absence.key) == []
    assert absence.look() == 0


def test_new_leader_looks_at_what_ended_before_its_term(absence: Absence) -> None:
    absence.end("Succeeded")
    absence.leader.forget()
    assert absence.look(absence.new_leader()) == 1
    assert absence.completed() is not None


def test_workers_have_time_to_end_a_job(absence: Absence) -> None:
    absence.end("Succeeded")
    absence.look_once()
    absence.clock.step(WORKERS_SECONDS / 2)
    assert absence.look_once() == 0
    absence.desk.until(lambda: (job := absence.desk.watches.job(absence.key)) is not None and job.finished)
    reads = absence.desk.watching.calls["get TorchJob"]
    assert absence.look() == 0
    assert absence.desk.watching.calls["get TorchJob"] == reads, "a job that a worker has ended costs no request"


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_job_that_is_not_complete_gets_no_record(absence: Absence, phase: str) -> None:
    absence.desk.move(absence.key, phase)
    absence.wait(lambda: all(pod.running == (phase == "Running") for pod in absence.pods(absence.key)))
    assert absence.look() == 0
    assert absence.completed() is None


def test_pod_that_ends_just_before_the_look_is_judged_when_it_has_settled(absence: Absence) -> None:
    master, worker = absence.desk.pods_of(absence.key)
    absence.report(worker, phase="Succeeded")
    absence.wait(lambda: absence.key in absence.desk.watches.completed)
    assert absence.look_once() == 0
    absence.clock.step(WORKERS_SECONDS)
    absence.end_container(master, ago=-1.0)  # the clock of its node is ahead
    absence.wait(lambda: absence.key in absence.desk.watches.completed)
    assert absence.look_once() == 0
    absence.clock.step(WORKERS_SECONDS)
    assert absence.look_once() == 0, "its node may still report that the node itself ended the pod"
    absence.clock.step(1.0)
    assert absence.look_once() == 1


def test_pod_that_its_node_no_longer_reported_is_no_success(absence: Absence) -> None:
    for name in absence.desk.pods_of(absence.key):
        absence.report(name, phase="Running", startTime="2026-01-02T03:04:05Z", containerStatuses=[])
    absence.wait(lambda: all(pod.unreported for pod in absence.pods(absence.key)))
    for name in absence.desk.pods_of(absence.key):
        absence.end_container(name)
        absence.report(name, phase="Succeeded")
    absence.wait(lambda: all(not pod.running and not pod.occupies for pod in absence.pods(absence.key)))
    absence.desk.watches.completed.add(absence.key)
    assert absence.look() == 0
    assert absence.completed() is None


def test_result_of_the_job_is_recorded_too(absence: Absence) -> None:
    master, worker = absence.desk.pods_of(absence.key)
    absence.end_container(master, message='{"torchq-result": {"acc": 1}}')
    absence.report(master, phase="Succeeded")
    absence.report(worker, phase="Succeeded")
    absence.wait(lambda: all(pod.completed for pod in absence.pods(absence.key)))
    assert absence.look() == 1
    absence.delete_pods()
    absence.desk.until(lambda: absence.desk.phase(absence.key) == "Succeeded")
    assert absence.desk.job(absence.key).status.result == '{"acc":1}'


def test_success_of_one_task_of_several_is_no_completion(absence: Absence) -> None:
    name = next(name for name in absence.desk.pods_of(absence.key) if "worker" in name)
    absence.desk.cluster.patch(PODS, name, {"status": {"phase": "Succeeded"}}, absence.namespace, subresource="status")
    absence.wait(lambda: any(pod.completed for pod in absence.pods(absence.key)))
    assert absence.look() == 0
    absence.end("Succeeded")
    assert absence.look() == 1, "the end of the other task makes the leader look again"


def test_record_of_an_earlier_run_ends_no_job(absence: Absence) -> None:
    absence.end("Succeeded")
    absence.look()
    absence.delete_pods()
    earlier = {"status": {"completed": {"restartGeneration": 7}}}
    absence.desk.cluster.patch(TORCHJOBS, absence.key.name, earlier, absence.namespace, subresource="status")
    absence.desk.until(lambda: len(absence.desk.pods_of(absence.key)) == 2)
    assert absence.desk.phase(absence.key) != "Succeeded"


@pytest.mark.parametrize(("call", "pause"), [("patch", RETRY_SECONDS), ("get", REFUSED_SECONDS)])
def test_refused_request_is_repeated(
    absence: Absence, monkeypatch: pytest.MonkeyPatch, call: str, pause: float
) -> None:
    absence.end("Succeeded")
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> None:
            raise errors.ServerError("the API server is ill")

        patched.setattr(absence.desk.watching, call, refuse)
        assert absence.look() == 0
    assert absence.look_once() == 0, "the job waits while other jobs have their turn"
    absence.clock.step(pause)
    assert absence.look_once() == 1


def test_write_that_a_worker_was_faster_than_is_judged_again(absence: Absence, monkeypatch: pytest.MonkeyPatch) -> None:
    absence.end("Succeeded")
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> None:
            raise errors.Conflict("the job has changed")

        patched.setattr(absence.desk.watching, "patch", refuse)
        assert absence.look() == 0
    absence.clock.step(WORKERS_SECONDS)
    assert absence.look_once() == 1
