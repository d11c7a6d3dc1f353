"""The calls of both clients, answered by the real program on an embedded API server. The test sets the statuses of the
jobs.
"""

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import torchq
from crds import labels
from crds.api_resources import EVENTS, TENANT_QUEUES, TORCHJOBS
from kube.client import KubernetesCluster
from tests.support.client.callers import Caller
from tests.support.coordinator.desk import manifest
from tests.support.waiting import until

TIME = "2026-01-01T00:00:00Z"
_NUMBERS = itertools.count(1)


class Scene:
    """Jobs of a namespace, and the client that calls methods for them."""

    def __init__(self, caller: Caller, cluster: KubernetesCluster, namespace: str) -> None:
        self.caller = caller
        self.cluster = cluster
        self.namespace = namespace

    def job(self, name: str = "train", queue: str = "a", **spec: Any) -> Any:
        """Create a job and return the client's handle of the job."""
        self.cluster.create(TORCHJOBS, manifest(name, queue, **spec), self.namespace)
        return self.caller.do(lambda client: client.job(f"{self.namespace}/{name}"))

    def stored(self, name: str = "train") -> dict[str, Any]:
        return self.cluster.get(TORCHJOBS, name, self.namespace)

    def say(self, name: str, phase: str, reason: str = "", message: str = "", **status: Any) -> None:
        """Set the status of a job, as its worker does."""
        condition = {
            "type": phase, "status": "True", "reason": reason or phase, "message": message, "lastTransitionTime": TIME
        }  # fmt: skip
        patch = {"status": {"phase": phase, "conditions": [condition], **status}}
        self.cluster.patch(TORCHJOBS, name, patch, self.namespace, subresource="status")


@pytest.fixture
def scene(caller: Caller, embedded_cluster: KubernetesCluster, namespace: str) -> Scene:
    return Scene(caller, embedded_cluster, namespace)


# Reading.


def test_a_job_is_found_by_name_and_by_handle_and_never_as_a_later_one(scene: Scene) -> None:
    job = scene.job()
    uid = scene.stored()["metadata"]["uid"]
    assert (job.handle, job.name, job.namespace, job.uid) == (
        f"{scene.namespace}/train/{uid}", "train", scene.namespace, uid
    )  # fmt: skip
    assert scene.caller.do(lambda client: client.job(job.handle)) == job
    scene.cluster.delete(TORCHJOBS, "train", scene.namespace)
    scene.job()
    for call in (lambda client: client.job(job.handle), lambda _: job.phase, lambda _: job.suspend()):
        with pytest.raises(torchq.NotFound, match=r"is gone; .*/train is another job now"):
            scene.caller.do(call)


def test_jobs_are_listed_in_the_order_of_submission_by_queue_and_phase(scene: Scene) -> None:
    one, two, three = scene.job("one"), scene.job("two", "b"), scene.job("three")
    scene.say("three", "Running")

    def listed(**chosen: Any) -> list[Any]:
        return list(scene.caller.do(lambda client: client.jobs(namespace=scene.namespace, **chosen)))

    assert set(listed()) == {one, two, three}
    assert listed(queue="b") == [two]
    assert listed(phase="Running", queue="a") == [three]
    assert listed(phase="Pending", queue="a") == [one]


def test_a_job_tells_its_phase_why_it_does_not_run_and_its_pods(scene: Scene) -> None:
    job = scene.job(suspend=True)
    assert scene.caller.do(lambda _: job.phase) == "Pending"
    scene.say("train", "Suspended")
    assert scene.caller.do(lambda _: job.phase) == "Suspended"
    why = scene.caller.do(lambda _: job.why())
    assert (why["code"], why["state"]) == ("Suspended", "suspended")
    assert scene.caller.do(lambda _: job.position()) is None
    assert scene.caller.do(lambda _: job.pods()) == []
    assert scene.caller.do(lambda _: job.details())["details"]["phase"] == "Suspended"


def test_queues_are_shown_as_the_command_shows_them(scene: Scene) -> None:
    said = scene.caller.do(lambda client: client.command("queue", "create", "a", "--weight", "3"))
    assert said.startswith("queue a created on ")
    assert scene.caller.do(lambda client: client.queue("a"))["spec"]["weight"] == 3
    assert [each["metadata"]["name"] for each in scene.caller.do(lambda client: client.queues())] == ["a"]
    assert scene.caller.do(lambda client: client.status())["leader"] == ""
    with pytest.raises(torchq.Unavailable, match="no coordinator answers questions about the queues"):
        scene.caller.do(lambda client: client.next_picks(count=3))


# Changing.


def test_a_change_is_that_of_the_command_with_its_event(scene: Scene) -> None:
    job = scene.job()
    scene.caller.do(lambda _: job.hold(reason="wrong data"))
    assert scene.stored()["spec"]["schedulingPolicy"]["hold"] is True
    scene.caller.do(lambda _: job.resume())
    assert scene.stored()["spec"]["schedulingPolicy"]["hold"] is False
    scene.caller.do(lambda _: job.suspend())
    assert scene.stored()["spec"]["suspend"] is True
    scene.cluster.create(TENANT_QUEUES, {
        "apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind, "metadata": {"name": "b"}, "spec": {}
    })  # fmt: skip
    scene.caller.do(lambda _: job.move("b", anyway=True))
    assert scene.stored()["spec"]["schedulingPolicy"]["queue"] == "b"
    events = {each["reason"]: each["message"] for each in scene.cluster.list(EVENTS, scene.namespace).items}
    assert events["JobHeld"].endswith(": wrong data")
    assert set(events) == {"JobHeld", "JobResumed", "JobSuspended", "JobMoved"}


def test_a_change_of_several_jobs_begins_with_those_that_wait_and_names_a_refused_one(scene: Scene) -> None:
    first, second = scene.job("first"), scene.job("second")
    scene.say("first", "Running", admission={"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}})
    with pytest.raises(torchq.Refused, match="nobody"):
        scene.caller.do(lambda client: client.suspend([first, second, "nobody"], reason="maintenance"))
    events = sorted(
        scene.cluster.list(EVENTS, scene.namespace).items, key=lambda each: int(each["metadata"]["resourceVersion"])
    )
    assert [each["involvedObject"]["name"] for each in events] == ["second", "first"]
    scene.caller.do(lambda client: client.cancel([first, second]))
    assert all(scene.cluster.get(TORCHJOBS, name, scene.namespace)["spec"]["cancel"] for name in ("first", "second"))
    scene.caller.do(lambda client: client.delete([]))
    scene.caller.do(lambda client: client.hold([second]))
    scene.caller.do(lambda client: client.delete([first, second]))
    assert scene.cluster.list(TORCHJOBS, scene.namespace).items == []


def test_a_restart_of_one_pod_names_it(scene: Scene) -> None:
    job = scene.job()
    admission = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}
    scene.say("train", "Running", admission=admission)
    scene.caller.do(lambda _: job.restart(task="worker", index=0, how="Recreate"))
    request = json.loads(scene.stored()["metadata"]["annotations"][labels.RESTART_REQUEST])
    assert (request["task"], request["index"], request["how"]) == ("Worker", 0, "Recreate")
    with pytest.raises(torchq.Invalid, match="how: must be InPlace or Recreate, not 'Now'"):
        scene.caller.do(lambda _: job.restart(how="Now"))


def test_submitted_manifests_run_in_the_present_folder_all_or_none(scene: Scene, folder: Any) -> None:
    documents = [
        {**manifest(name, "a"), "metadata": {"name": name, "namespace": scene.namespace}} for name in ("one", "two")
    ]
    jobs = scene.caller.do(lambda client: client.submit(documents))
    assert [job.name for job in jobs] == ["one", "two"]
    assert scene.stored("one")["metadata"]["annotations"][labels.SUBMIT_DIRECTORY] == str(folder)
    with pytest.raises(torchq.AlreadyExists, match=r"manifests\[1\]: .*already exists"):
        scene.caller.do(lambda client: client.submit([{**documents[0], "metadata": {"name": "new"}}, documents[1]]))
    wrong = {**documents[0], "spec": {"torchTaskSpecs": {}}}
    with pytest.raises(torchq.Invalid, match=r"manifests\[0\]: .*\n  spec.torchTaskSpecs"):
        scene.caller.do(lambda client: client.submit([wrong]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("queue", "set-weight", "a", "zero"), "'zero' is not a valid integer range"),
        (("queue", "sett"), "No such command 'sett'"),
        (("local", "up"), "`torchq local` is no call"),
        (("--help",), "name a command"),
        ((), "name a command"),
    ],
)
def test_a_wrong_command_is_refused_in_the_words_of_the_command_line(
    scene: Scene, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(torchq.Invalid, match=message):
        scene.caller.do(lambda client: client.command(*words))


# Waiting.


@pytest.mark.parametrize("result", [{"accuracy": 0.95}, {}, 4, "", [], False], ids=json.dumps)
def test_a_wait_ends_with_the_job_and_its_result(scene: Scene, result: object) -> None:
    job = scene.job()
    scene.say("train", "Succeeded", message="all is done", result=json.dumps(result))
    assert scene.caller.do(lambda _: job.wait()) == torchq.Ending(
        job.handle, "Succeeded", "all is done", result, "Succeeded", 0
    )
    given = scene.caller.do(lambda _: job.result())
    assert (type(given), given) == (type(result), result)


def test_a_result_of_a_job_that_failed_says_why(scene: Scene) -> None:
    failed, cancelled, deleted = scene.job("failed"), scene.job("cancelled"), scene.job("deleted")
    scene.say("failed", "Failed", "PodFailed", "exit code 3", exitCode=3)
    scene.say("cancelled", "Failed", "Cancelled", "the user cancelled it")
    scene.cluster.delete(TORCHJOBS, "deleted", scene.namespace)
    said, causes = {}, []
    for job in (failed, cancelled, deleted):
        with pytest.raises(torchq.Failed) as caught:
            scene.caller.do(lambda _, job=job: job.result())
        said[caught.value.outcome] = str(caught.value)
        causes.append((caught.value.reason, caught.value.exit_code))
    assert causes == [("PodFailed", 3), ("Cancelled", None), ("", None)]
    assert said["Failed"] == f"job {scene.namespace}/failed: Failed: exit code 3"
    assert said["Cancelled"].endswith("Cancelled: the user cancelled it")
    assert "the job was deleted" in said["Deleted"]


def test_a_wait_that_takes_too_long_is_over_and_the_job_goes_on(scene: Scene) -> None:
    job = scene.job()
    for call in (lambda _: job.wait(timeout=0.01), lambda client: client.wait([job], timeout=0.01)):
        with pytest.raises(TimeoutError, match=r"train did not end within 0.01 s; the wait is over, the job goes on"):
            scene.caller.do(call)


def test_a_wait_for_the_first_of_several_returns_with_it(scene: Scene) -> None:
    jobs = [scene.job(name) for name in ("one", "two", "three")]
    scene.say("two", "Succeeded")
    (ending,) = scene.caller.do(lambda client: client.wait(jobs, first=True))
    assert ending.handle == jobs[1].handle
    scene.say("one", "Succeeded")
    scene.say("three", "Failed")
    endings = scene.caller.do(lambda client: client.wait([each.handle for each in jobs]))
    assert [each.outcome for each in endings] == ["Succeeded", "Succeeded", "Failed"]
    assert scene.caller.do(lambda client: client.wait([])) == []


def test_jobs_are_yielded_as_they_end(scene: Scene) -> None:
    jobs = [scene.job(name) for name in ("one", "two", "three")]
    ended = scene.caller.items(lambda client: client.as_completed(jobs))
    for name in ("three", "one", "two"):
        scene.say(name, "Succeeded")
        assert next(ended).name == name
    assert list(ended) == []


def test_a_wait_for_a_running_job_has_that_goal(scene: Scene) -> None:
    job = scene.job()
    scene.say("train", "Running")
    assert scene.caller.do(lambda _: job.wait(goal="Running")).outcome == "Running"
    with pytest.raises(torchq.Invalid, match="goal: must be one of Finished"):
        scene.caller.do(lambda _: job.wait(goal="Perfect"))


def test_fifty_threads_wait_for_as_many_jobs_and_all_end(scene: Scene) -> None:
    jobs = [scene.job(f"job-{number:02}") for number in range(50)]
    begun = threading.Barrier(51)

    def wait(job: Any) -> str:
        begun.wait(60)
        return str(scene.caller.do(lambda _: job.wait(timeout=60)).outcome)

    with ThreadPoolExecutor(50) as pool:
        outcomes = pool.map(wait, jobs)
        begun.wait(60)
        for job in jobs:
            scene.say(job.name, "Succeeded")
        assert set(outcomes) == {"Succeeded"}


# Logs and files.


def test_a_job_without_output_says_why(scene: Scene) -> None:
    job = scene.job()
    with pytest.raises(torchq.Refused, match="has no output yet: the job is Pending"):
        next(scene.caller.items(lambda _: job.logs()))
    with pytest.raises(torchq.Invalid, match="tail: must not be negative"):
        next(scene.caller.items(lambda _: job.logs(tail=-1)))


def test_followed_logs_say_why_a_job_waits_and_end_when_they_are_left(scene: Scene) -> None:
    job = scene.job()
    queue = {"name": "a", "reason": "WaitingForQuota", "message": "no quota is left"}
    scene.say("train", "Queued", queue=queue)
    lines = scene.caller.items(lambda _: job.logs(follow=True))
    first = next(lines)
    assert first.pod == ""
    assert "WaitingForQuota" in first.text
    lines.close()
    assert until(lambda: scene.caller.do(lambda _: job.phase)) == "Queued"


def test_files_that_cannot_be_read_from_here_are_named(scene: Scene) -> None:
    job, other = scene.job(outputs={"claimName": "models"}), scene.job("other")
    assert scene.caller.do(lambda _: job.outputs()) == {
        "claim": "models", "namespace": scene.namespace, "path": f"{scene.namespace}/train-{job.uid}"
    }  # fmt: skip
    with pytest.raises(torchq.Refused, match=f"claim models of namespace {scene.namespace}, under .*/train-"):
        scene.caller.do(lambda _: job.download())
    with pytest.raises(torchq.Refused, match="name a PersistentVolumeClaim with `outputs`"):
        scene.caller.do(lambda _: other.outputs())
