"""Commands about several jobs: each change is printed, and one failure hides no other failure."""

import pytest

from crds import labels
from crds.api_resources import TORCHJOBS
from crds.torchjob import submission_order
from kube.client import KubernetesCluster
from tests.coordinator.cli.jobs.test_wait import end, make
from tests.support.coordinator.command import Torchq, table
from tests.support.coordinator.desk import manifest


@pytest.mark.parametrize("verb", ["cancel", "delete", "suspend", "hold", "resume"])
def test_a_change_of_several_jobs_is_told_one_by_one_and_a_failure_hides_no_other(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, verb: str
) -> None:
    make(embedded_cluster, namespace, "one", "two")
    result = torchq("job", verb, "one", "nobody", "two", "one", code=1)
    assert sorted(line.split()[:2] for line in result.stdout.splitlines()) == [
        ["job", f"{namespace}/one"],
        ["job", f"{namespace}/two"],
    ]
    assert result.stderr.startswith("Error: ")
    assert "nobody" in result.stderr


def test_a_selector_chooses_the_jobs(torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str) -> None:
    make(embedded_cluster, namespace, "one", "two", sweep="lr")
    make(embedded_cluster, namespace, "other")
    torchq("job", "cancel", "-l", "sweep=lr")
    cancelled = {
        item["metadata"]["name"]: item["spec"].get("cancel")
        for item in embedded_cluster.list(TORCHJOBS, namespace).items
    }
    assert cancelled == {"one": True, "two": True, "other": None}
    none = torchq("job", "suspend", "-l", "sweep=none")
    assert none.stderr == f"note: no job in namespace {namespace} has the labels sweep=none\n"
    assert "name the jobs" in torchq("job", "suspend", "one", "-l", "sweep=lr", code=2).stderr
    assert torchq("job", "show", "one", "two").stdout.count("Job:        ") == 2


@pytest.mark.parametrize("verb", ["cancel", "delete", "suspend"])
@pytest.mark.parametrize("by_name", [True, False])
def test_jobs_without_room_end_first_and_the_newest_before_the_others(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, verb: str, by_name: bool
) -> None:
    """The room that is freed must not go to a job that the same command is about to end."""
    names = ("running", "first", "second", "third", "starting")
    for place, name in enumerate(names):
        body = manifest(name)
        body["metadata"] |= {
            "labels": {"sweep": "lr"},
            "annotations": {labels.SUBMITTED: submission_order.text(1, place)},
        }
        embedded_cluster.create(TORCHJOBS, body, namespace)
    for name in ("running", "starting"):
        admission = {"queue": namespace, "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}
        embedded_cluster.patch(TORCHJOBS, name, {"status": {"admission": admission}}, namespace, subresource="status")
    said = torchq("job", verb, *(names if by_name else ("-l", "sweep=lr"))).stdout
    ended = [line.split()[1].removeprefix(f"{namespace}/") for line in said.splitlines()]
    assert ended == ["third", "second", "first", "starting", "running"]


def test_a_job_that_has_ended_is_not_cancelled(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    make(embedded_cluster, namespace, "one", "two")
    end(embedded_cluster, namespace, "one")
    end(embedded_cluster, namespace, "two", "Failed", "Cancelled")
    assert "has ended already (Succeeded): torchq job delete" in torchq("job", "cancel", "one", code=1).stderr
    assert "has ended already (Cancelled): torchq job delete" in torchq("job", "cancel", "two", code=1).stderr


def test_jobs_move_together_to_the_queue_that_comes_last(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    make(embedded_cluster, namespace, "one", "two")
    assert len(torchq("job", "move", "one", "two", "b").stdout.splitlines()) == 2
    assert [row[2] for row in table(torchq("job", "list", "--no-headers").stdout)] == ["b", "b"]


def test_the_namespace_may_come_after_the_command(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    make(embedded_cluster, namespace, "one")
    for words in (("job", "list", "-n", namespace), ("-n", namespace, "job", "list"), ("job", "show", "one")):
        assert "one" in torchq(*words, TORCHQ_NAMESPACE=namespace if words[1] == "show" else "default").stdout
    assert torchq("job", "suspend", "one", "--namespace", namespace, TORCHQ_NAMESPACE="default").stdout
