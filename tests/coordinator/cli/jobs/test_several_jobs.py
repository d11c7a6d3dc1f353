"""Commands about several jobs: each change is told, and a failure hides no other."""

import pytest

from crds.api_resources import TORCHJOBS
from kube.client import KubernetesCluster
from tests.coordinator.cli.jobs.test_wait import end, make
from tests.support.coordinator.command import Torchq, table


@pytest.mark.parametrize("verb", ["cancel", "delete", "suspend", "hold", "resume"])
def test_a_change_of_several_jobs_is_told_one_by_one_and_a_failure_hides_no_other(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, verb: str
) -> None:
    make(embedded_cluster, namespace, "one", "two")
    result = torchq("job", verb, "one", "nobody", "two", "one", code=1)
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
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


def test_a_job_that_has_ended_is_not_cancelled(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    make(embedded_cluster, namespace, "one")
    end(embedded_cluster, namespace, "one")
    assert "has ended already (Succeeded): torchq job delete" in torchq("job", "cancel", "one", code=1).stderr


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
