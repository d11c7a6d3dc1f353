"""`torchq job scale`: the arguments, the request that each argument makes, and jobs that cannot be scaled."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from crds.api_resources import EVENTS, SCALE_INS, SCALE_OUTS, TORCHJOBS
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest, task
from tests.support.waiting import until

ADMISSION = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}, "workers": 3}
RUNNING: dict[str, Any] = {"phase": "Running", "admission": ADMISSION, "observedGeneration": 1}
WAITING: dict[str, Any] = {
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "WaitsForRanks",
            "message": "for worker-1",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
}
ELASTIC = {"numMinReplicas": 1, "numMaxReplicas": 5}


@pytest.fixture
def job(embedded_cluster: KubernetesCluster, namespace: str) -> str:
    """Create a running elastic job of 3 workers and return its name."""
    create(embedded_cluster, namespace, torchElasticPolicy=ELASTIC)
    say(embedded_cluster, namespace, **RUNNING)
    return "train"


def create(cluster: KubernetesCluster, namespace: str, **spec: Any) -> None:
    cluster.create(TORCHJOBS, manifest("train", "a", {"Worker": task(3)}, **spec), namespace)


def say(cluster: KubernetesCluster, namespace: str, **status: Any) -> None:
    cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")


def workers(cluster: KubernetesCluster, namespace: str) -> int:
    return int(cluster.get(TORCHJOBS, "train", namespace)["spec"]["torchTaskSpecs"]["Worker"]["numTasks"])


def requests(cluster: KubernetesCluster, namespace: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the kind and the spec of each request."""
    items = [*cluster.list(SCALE_OUTS, namespace).items, *cluster.list(SCALE_INS, namespace).items]
    return [(item["kind"], item["spec"]) for item in items]


def test_number_is_written_by_the_scale_subresource(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    result = torchq("job", "scale", job, "4", "--reason", "more room")
    assert result.output == f"job {namespace}/train scaled from 3 to 4 workers on torchq-local\n"
    assert workers(embedded_cluster, namespace) == 4
    assert requests(embedded_cluster, namespace) == []
    (event,) = embedded_cluster.list(EVENTS, namespace).items
    assert (event["reason"], event["message"].partition(", by ")[2]) == ("JobScaled", "torchq-local: more room")


COMMON = {"selector": {"name": "train"}, "taskType": "Worker", "ttlSecondsAfterFinished": 600}


@pytest.mark.parametrize(
    ("arguments", "kind", "change", "said"),
    [
        (("+2",), "ScaleOut", {"toAdd": {"count": 2}}, "to grow from 3 to 5 workers"),
        (("-2",), "ScaleIn", {"toDelete": {"count": 2}}, "to shrink from 3 to 1 workers"),
        (
            ("--pods", "train-worker-1,train-worker-2"),
            "ScaleIn",
            {"toDelete": {"podNames": ["train-worker-1", "train-worker-2"]}},
            "to lose train-worker-1, train-worker-2",
        ),
    ],
)
def test_change_creates_a_request_and_leaves_the_job_to_a_worker(
    torchq: Torchq,
    job: str,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    arguments: tuple[str, ...],
    kind: str,
    change: dict[str, Any],
    said: str,
) -> None:
    result = torchq("job", "scale", job, *arguments, "--timeout", "60")
    assert requests(embedded_cluster, namespace) == [(kind, COMMON | change | {"timeoutSeconds": 60})]
    assert result.output.startswith(f"job {namespace}/train {said} ({kind} train-")
    assert workers(embedded_cluster, namespace) == 3


def test_requests_of_one_second_are_named_in_order_of_time(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    """A name ends in a random part, so five requests are in order by accident only once in 120 times."""
    for change in ("+1", "-1", "+2", "-2", "+1"):
        torchq("job", "scale", job, change)
    items = [*embedded_cluster.list(SCALE_OUTS, namespace).items, *embedded_cluster.list(SCALE_INS, namespace).items]
    ordered = sorted(items, key=lambda item: item["metadata"]["name"])
    changes = [(item["spec"].get("toAdd") or item["spec"].get("toDelete"))["count"] for item in ordered]
    assert [item["kind"] for item in ordered] == ["ScaleOut", "ScaleIn", "ScaleOut", "ScaleIn", "ScaleOut"]
    assert changes == [1, 1, 2, 2, 1]


@pytest.mark.parametrize("arguments", [("4",), ("+2",), ("-2",), ("--pods", "train-worker-1")])
def test_dry_run_changes_nothing(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, arguments: tuple[str, ...]
) -> None:
    assert torchq("job", "scale", job, *arguments, "--dry-run").output.endswith("(dry run)\n")
    assert workers(embedded_cluster, namespace) == 3
    assert requests(embedded_cluster, namespace) == []


@pytest.mark.parametrize(
    ("size", "bound"), [("6", "numMaxReplicas is 5"), ("+3", "numMaxReplicas is 5"), ("-3", "numMinReplicas is 1")]
)
def test_size_beyond_the_bounds_is_refused_with_the_bound(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str, size: str, bound: str
) -> None:
    """The API server would store such a request, so the command must first try the new size in a dry run."""
    assert torchq("job", "scale", job, size, code=1).output.endswith(f"workers: its torchElasticPolicy.{bound}\n")
    assert workers(embedded_cluster, namespace) == 3
    assert requests(embedded_cluster, namespace) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say either a size"),
        (("2", "--pods", "train-worker-0"), "say either a size"),
        (("few",), "neither a number of workers nor a change"),
        (("+",), "neither a number of workers nor a change"),
        (("--wat",), "No such option '--wat'"),
        (("-x",), "No such option '-x'"),
        (("--workers", "4"), "No such option '--workers'"),
        (("+0",), "changes nothing"),
    ],
)
def test_wrong_arguments_are_refused(torchq: Torchq, job: str, arguments: tuple[str, ...], said: str) -> None:
    assert said in torchq("job", "scale", job, *arguments, code=2).output


@pytest.mark.parametrize(
    ("spec", "status"), [({}, {}), ({"suspend": True}, RUNNING), ({"suspend": True}, {"phase": "Suspended"})], ids=str
)
@pytest.mark.parametrize(("size", "left"), [("+2", 5), ("-2", 1)])
def test_change_of_a_job_that_waits_or_is_suspended_is_written_at_once(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    spec: dict[str, Any],
    status: dict[str, Any],
    size: str,
    left: int,
) -> None:
    create(embedded_cluster, namespace, torchElasticPolicy=ELASTIC, **spec)
    say(embedded_cluster, namespace, **status)
    assert f"scaled from 3 to {left} workers" in torchq("job", "scale", "train", size).output
    assert workers(embedded_cluster, namespace) == left
    assert requests(embedded_cluster, namespace) == []


@pytest.mark.parametrize(
    ("spec", "status", "said"),
    [
        ({"torchElasticPolicy": ELASTIC}, {}, "waits, and has no pods"),
        ({"torchElasticPolicy": ELASTIC, "suspend": True}, {"phase": "Suspended"}, "is suspended"),
    ],
)
def test_pods_of_a_job_without_room_are_not_removed(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    spec: dict[str, Any],
    status: dict[str, Any],
    said: str,
) -> None:
    create(embedded_cluster, namespace, **spec)
    say(embedded_cluster, namespace, **status)
    assert said in torchq("job", "scale", "train", "--pods", "train-worker-1", code=1).output
    assert requests(embedded_cluster, namespace) == []


@pytest.mark.parametrize(
    ("spec", "status", "said"),
    [
        ({}, RUNNING, "is not elastic"),
        ({"torchElasticPolicy": ELASTIC}, {"phase": "Succeeded"}, "has finished"),
        ({"torchElasticPolicy": ELASTIC}, RUNNING | WAITING, "keeps its number of workers until it ends: for worker-1"),
    ],
)
def test_job_that_cannot_be_changed_is_named_with_the_reason(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    spec: dict[str, Any],
    status: dict[str, Any],
    said: str,
) -> None:
    create(embedded_cluster, namespace, **spec)
    say(embedded_cluster, namespace, **status)
    assert said in torchq("job", "scale", "train", "+1", code=1).output
    assert requests(embedded_cluster, namespace) == []


def test_job_without_workers_has_no_size_to_change(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    embedded_cluster.create(TORCHJOBS, manifest("alone", "a", {"Master": task()}), namespace)
    for size in ("4", "+1"):
        said = torchq("job", "scale", "alone", size, code=1).output
        assert "job alone has no task Worker" in said.replace(f"{namespace}/", "")


@pytest.fixture
def worker(embedded_cluster: KubernetesCluster, namespace: str) -> Iterator[dict[str, Any]]:
    """Give the first request the yielded status as soon as the request exists, as a worker does."""
    status: dict[str, Any] = {}

    def play() -> None:
        until(lambda: requests(embedded_cluster, namespace))
        for resource in (SCALE_OUTS, SCALE_INS):
            for item in embedded_cluster.list(resource, namespace).items:
                name = item["metadata"]["name"]
                embedded_cluster.patch(resource, name, {"status": status}, namespace, subresource="status")

    thread = threading.Thread(target=play)
    thread.start()
    yield status
    thread.join()


def test_wait_returns_once_the_request_has_succeeded(torchq: Torchq, job: str, worker: dict[str, Any]) -> None:
    worker.update(phase="Succeeded", message="all 5 workers run")
    assert "has succeeded: all 5 workers run" in torchq("job", "scale", job, "+2", "--wait").output


def test_wait_reports_why_the_request_has_failed(torchq: Torchq, job: str, worker: dict[str, Any]) -> None:
    worker.update(phase="Failed", reason="TimedOut", message="1 of 2 workers did not join")
    assert "has failed (TimedOut): 1 of 2" in torchq("job", "scale", job, "-1", "--wait", code=1).output


def test_wait_for_a_request_says_that_the_job_is_gone(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    def delete() -> None:
        until(lambda: requests(embedded_cluster, namespace))
        embedded_cluster.delete(TORCHJOBS, job, namespace)
        for item in embedded_cluster.list(SCALE_INS, namespace).items:
            embedded_cluster.delete(SCALE_INS, item["metadata"]["name"], namespace)

    thread = threading.Thread(target=delete)
    thread.start()
    said = torchq("job", "scale", job, "-1", "--wait", code=1).output
    thread.join()
    assert f'"{job}" not found' in said or f"{job} is gone" in said, said
    assert "scaleins" not in said


def test_wait_for_a_number_returns_once_the_job_has_it(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    said = torchq("job", "scale", job, "4", "--wait", "--timeout", "1", code=1).output
    assert "has 3 of 4 workers after 1 s; it still wants all of them" in said
    say(embedded_cluster, namespace, admission=ADMISSION | {"workers": 4}, observedGeneration=2)
    assert "has 4 workers" in torchq("job", "scale", job, "4", "--wait").output


def test_wait_for_a_number_fails_once_a_rank_has_ended(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    def end_a_rank() -> None:
        until(lambda: workers(embedded_cluster, namespace) == 4)
        say(embedded_cluster, namespace, **WAITING)

    thread = threading.Thread(target=end_a_rank)
    thread.start()
    said = torchq("job", "scale", job, "4", "--wait", code=1).output
    thread.join()
    assert "keeps its 3 workers until it ends: for worker-1" in said


def test_wait_for_a_number_ends_at_once_while_the_job_holds_no_room(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    create(embedded_cluster, namespace, torchElasticPolicy=ELASTIC)
    assert "from its next admission on" in torchq("job", "scale", "train", "2", "--wait").output
    assert workers(embedded_cluster, namespace) == 2
