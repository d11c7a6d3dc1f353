"""Commands that change fields that `torchq submit` checks: they refuse, as `submit` does, a change after which a job
could never run.
"""

from typing import Any

import pytest

from crds.api_resources import EVENTS, TENANT_QUEUES, TORCHJOBS
from kube.client import KubernetesCluster
from tests.coordinator.cli.test_submit_refusals import Place, body, place, store  # noqa: F401 - fixtures

RUNNING = {"phase": "Running", "admission": {"queue": "wide", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}}
TOO_SMALL = "spec.torchTaskSpecs: the job asks for 5 of nvidia.com/gpu, queue a can give 4 at most"
MOVES = [
    ("a", TOO_SMALL),
    ("nobody", "spec.schedulingPolicy.queue: there is no TenantQueue nobody: name another queue"),
    ("theirs", "spec.schedulingPolicy.queue: queue theirs is not for namespace"),
]


def stored(cluster: KubernetesCluster, place: Place, name: str) -> dict[str, Any]:  # noqa: F811
    return cluster.get(TORCHJOBS, name, place.namespace)


def queue_of(cluster: KubernetesCluster, place: Place, name: str) -> str:  # noqa: F811
    return str(stored(cluster, place, name)["spec"]["schedulingPolicy"]["queue"])


def say(cluster: KubernetesCluster, place: Place, name: str, status: dict[str, Any]) -> None:  # noqa: F811
    cluster.patch(TORCHJOBS, name, {"status": status}, place.namespace, subresource="status")


@pytest.mark.parametrize(("queue", "words"), MOVES)
@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--requeue",)])
def test_a_move_after_which_one_of_the_jobs_can_never_run_is_refused_before_the_first_step(
    place: Place,  # noqa: F811
    embedded_cluster: KubernetesCluster,
    queue: str,
    words: str,
    options: tuple[str, ...],
) -> None:
    place.submit(body("small", "wide", gpus=1), body("large", "wide", gpus=5))
    say(embedded_cluster, place, "small", RUNNING)
    refused = place.run("job", "move", "small", "large", queue, *options, code=1).stderr
    assert f'move to queue {queue}: TorchJob "{place.namespace}/large" can never run:\n' in refused
    assert words in refused
    assert "nothing was moved; --anyway moves jobs that can never run, too" in refused
    for name in ("small", "large"):
        assert queue_of(embedded_cluster, place, name) == "wide"
        assert not stored(embedded_cluster, place, name)["spec"].get("suspend")
    assert embedded_cluster.list(EVENTS, place.namespace).items == []


def test_anyway_moves_a_job_that_can_never_run_with_a_warning(
    place: Place,  # noqa: F811
    embedded_cluster: KubernetesCluster,
) -> None:
    place.submit(body("large", "wide", gpus=5))
    assert TOO_SMALL in place.run("job", "move", "large", "a", "--anyway").stderr
    assert queue_of(embedded_cluster, place, "large") == "a"


def test_a_job_that_can_run_moves_without_a_word(place: Place, embedded_cluster: KubernetesCluster) -> None:  # noqa: F811
    place.submit(body("small", "wide", gpus=4))
    assert place.run("job", "move", "small", "a").stderr == ""
    assert queue_of(embedded_cluster, place, "small") == "a"


def test_a_queue_whose_jobs_could_never_run_elsewhere_is_not_deleted(
    place: Place,  # noqa: F811
    embedded_cluster: KubernetesCluster,
) -> None:
    place.submit(body("large", "wide", gpus=5))
    assert TOO_SMALL in place.run("queue", "delete", "wide", "--move-to", "a", code=1).stderr
    assert embedded_cluster.get(TENANT_QUEUES, "wide")["spec"].get("stopPolicy", "None") == "None"
    assert "warning: " in place.run("queue", "delete", "wide", "--move-to", "a", "--anyway").stderr
    assert queue_of(embedded_cluster, place, "large") == "a"


@pytest.mark.parametrize("elastic", [False, True])
def test_a_size_that_the_queue_can_never_give_is_refused_or_told_if_fewer_workers_do(
    place: Place,  # noqa: F811
    embedded_cluster: KubernetesCluster,
    elastic: bool,
) -> None:
    job = body("train", "a", gpus=1, **({"torchElasticPolicy": {"numMinReplicas": 1}} if elastic else {}))
    tasks = job["spec"]["torchTaskSpecs"]
    tasks |= {
        "Worker": tasks["Master"] | {"numTasks": 1},
        "Master": body("train", "a")["spec"]["torchTaskSpecs"]["Master"],
    }
    place.submit(job, options=("--anyway",))  # the node has no memory for the store of an elastic job
    said = place.run("job", "scale", "train", "5", *(["--anyway"] if elastic else []), code=0 if elastic else 1).stderr
    assert TOO_SMALL in said
    assert ("warning: " in said) is elastic
    assert elastic or said.startswith("Error: scale to 5: ")
    assert stored(embedded_cluster, place, "train")["spec"]["torchTaskSpecs"]["Worker"].get("numTasks", 1) == (
        5 if elastic else 1
    )
    assert elastic or place.run("job", "scale", "train", "5", "--anyway").stderr.startswith("warning: ")
