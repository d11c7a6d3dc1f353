"""`torchq job restart`: one request for each call, and an error if the job does not run."""

import json
from typing import Any

import pytest

from coordinator.runs import in_place
from crds import labels
from crds.api_resources import EVENTS, TORCHJOBS
from crds.torchjob import restart_requests, torchjob
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest, task

ADMISSION = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}
KRUISE = in_place.Found("kruise")
RUNNING: dict[str, Any] = {"phase": "Running", "admission": ADMISSION}


@pytest.fixture
def job(embedded_cluster: KubernetesCluster, namespace: str) -> str:
    """Create a running job and return its name."""
    embedded_cluster.create(TORCHJOBS, manifest("train", "a", {"Master": task(), "Worker": task(3)}), namespace)
    say(embedded_cluster, namespace, **RUNNING)
    return "train"


def say(cluster: KubernetesCluster, namespace: str, **status: Any) -> None:
    cluster.patch(TORCHJOBS, "train", {"status": status}, namespace, subresource="status")


def asked(cluster: KubernetesCluster, namespace: str) -> restart_requests.RestartRequest | None:
    return restart_requests.pending_request(torchjob.parse(cluster.get(TORCHJOBS, "train", namespace)))


@pytest.mark.parametrize(
    ("arguments", "expected", "said"),
    [
        ((), (None, None, ""), "restart of the whole job requested"),
        (("--in-place",), (None, None, "InPlace"), "restart in place of the whole job requested"),
        (("--task", "worker"), ("Worker", None, ""), "restart of task Worker requested"),
        (
            ("--task", "Worker", "--index", "2", "--recreate"),
            ("Worker", 2, "Recreate"),
            "restart with new pods of Worker 2 requested",
        ),
    ],
)
def test_restart_requests_the_selected_pods_and_method(
    torchq: Torchq,
    job: str,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    arguments: tuple[str, ...],
    expected: tuple[object, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_place, "find_driver", lambda *_, **__: in_place.Found("local"))
    result = torchq("job", "restart", job, *arguments, "--reason", "it hangs")
    assert result.output == f"job {namespace}/train: {said} on torchq-local\n"
    found = asked(embedded_cluster, namespace)
    assert found is not None
    assert (found.task, found.index, found.how) == expected
    (event,) = (each for each in embedded_cluster.list(EVENTS, namespace).items)
    assert event["reason"] == "JobRestartRequested"
    assert event["message"].endswith(", by torchq-local: it hangs")


def test_each_call_requests_one_restart(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    torchq("job", "restart", job)
    first = asked(embedded_cluster, namespace)
    assert first is not None
    say(embedded_cluster, namespace, **RUNNING, restartRequest=first.id)
    assert asked(embedded_cluster, namespace) is None
    torchq("job", "restart", job)
    second = asked(embedded_cluster, namespace)
    assert second is not None
    assert second.id != first.id


def test_a_dry_run_requests_no_restart(
    torchq: Torchq, job: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    assert "(dry run)" in torchq("job", "restart", job, "--dry-run").output
    assert asked(embedded_cluster, namespace) is None
    assert embedded_cluster.list(EVENTS, namespace).items == []


@pytest.mark.parametrize(
    ("status", "spec", "words"),
    [
        ({"phase": "Queued"}, {}, "waits and has no pods"),
        ({"phase": "Succeeded", "admission": ADMISSION}, {}, "has finished: submit a new job"),
        (RUNNING, {"suspend": True}, "is suspended: torchq job resume"),
    ],
)
def test_restart_rejects_a_job_that_does_not_run(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    status: dict[str, Any],
    spec: dict[str, Any],
    words: str,
) -> None:
    embedded_cluster.create(TORCHJOBS, manifest("train", "a", **spec), namespace)
    say(embedded_cluster, namespace, **status)
    assert words in torchq("job", "restart", "train", code=1).stderr
    found = embedded_cluster.get(TORCHJOBS, "train", namespace)["metadata"]
    assert labels.RESTART_REQUEST not in json.dumps(found)


@pytest.mark.parametrize(
    ("found", "arguments", "code", "words"),
    [
        (in_place.Found("", "nothing restarts"), (), 1, "cannot be restarted in place: nothing restarts"),
        (KRUISE, ("--task", "Worker"), 1, "cannot be restarted in place: the restartPolicy of task Worker is"),
        (KRUISE, (), 0, "note: pods of Worker are replaced, not restarted in place: the restartPolicy of task"),
        (KRUISE, ("--task", "Master"), 0, ""),
        (in_place.Found("kubernetes"), ("--task", "Worker"), 0, ""),
        (None, (), 0, ""),
    ],
)
def test_restart_in_place_says_where_it_cannot_be(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    found: in_place.Found | None,
    arguments: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    tasks = {"Master": task(), "Worker": task(3) | {"restartPolicy": "Never"}}
    embedded_cluster.create(TORCHJOBS, manifest("train", "a", tasks), namespace)
    say(embedded_cluster, namespace, **RUNNING)
    monkeypatch.setattr(in_place, "find_driver", lambda *_, **__: found)
    result = torchq("job", "restart", "train", "--in-place", *arguments, code=code)
    assert words in result.stderr
    assert bool(words) is bool(result.stderr)
    assert (asked(embedded_cluster, namespace) is None) is bool(code)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--index", "1"), "add --task"),
        (("--task", "Evaluator"), "has no Evaluator; it has"),
        (("--task", "Worker", "--index", "3"), "it has Master 0..0, Worker 0..2"),
        (("--task", "Worker", "--index", "-1"), "--index"),
    ],
)
def test_restart_rejects_an_unknown_pod(torchq: Torchq, job: str, arguments: tuple[str, ...], words: str) -> None:
    assert words in torchq("job", "restart", job, *arguments, code=2).stderr
