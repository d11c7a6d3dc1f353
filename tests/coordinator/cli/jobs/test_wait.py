"""`torchq job wait` and Ctrl-C: exit codes and lines."""

import threading
from typing import Any

import pytest

from crds.api_resources import TORCHJOBS
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest
from tests.support.metered import words
from tests.support.waiting import until

WHEN = "2026-01-01T00:00:00Z"


def make(cluster: KubernetesCluster, namespace: str, *names: str, **labels: str) -> None:
    for name in names:
        body = manifest(name)
        body["metadata"]["labels"] = labels
        cluster.create(TORCHJOBS, body, namespace)


def end(cluster: KubernetesCluster, namespace: str, name: str, phase: str = "Succeeded", reason: str = "") -> None:
    condition = {"type": phase, "status": "True", "reason": reason, "message": "so", "lastTransitionTime": WHEN}
    status = {"phase": phase, "conditions": [condition]}
    cluster.patch(TORCHJOBS, name, {"status": status}, namespace, subresource="status")


@pytest.mark.parametrize(
    ("phase", "reason", "options", "code", "said"),
    [
        ("Succeeded", "", (), 0, "Succeeded: so"),
        ("Failed", "PodFailed", (), 1, "Failed: so"),
        ("Failed", "Cancelled", (), 1, "Cancelled: so"),
        ("Running", "", ("--for", "Running"), 0, "Running: so"),
        ("Running", "", ("--for", "running"), 0, "Running: so"),
        ("Failed", "PodFailed", ("--for", "Running"), 1, "Failed: so"),
    ],
)
def test_the_exit_code_says_how_a_job_ended(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    phase: str,
    reason: str,
    options: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    make(embedded_cluster, namespace, "train")
    end(embedded_cluster, namespace, "train", phase, reason)
    assert torchq("job", "wait", "train", *options, code=code).stdout == f"{namespace}/train {said}\n"


def test_a_wait_ends_with_the_last_job_or_with_any_of_them(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    make(embedded_cluster, namespace, "one", "two", team="a")
    end(embedded_cluster, namespace, "two")
    assert torchq("job", "wait", "one", "two", "--any").stdout == f"{namespace}/two Succeeded: so\n"
    late = torchq("job", "wait", "-l", "team=a", "--timeout", "0", code=124)
    assert late.stdout == f"{namespace}/two Succeeded: so\n"
    assert late.stderr == f"the time is over; still waiting: {namespace}/one\n"
    threading.Thread(target=end, args=(embedded_cluster, namespace, "one")).start()
    assert "/one Succeeded" in torchq("job", "wait", "one", "two").stdout


def test_a_thousand_names_cost_one_list_and_one_watch(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"job-{number}" for number in range(100)]
    make(embedded_cluster, namespace, *names)
    for name in names:
        end(embedded_cluster, namespace, name)
    asked = []
    persist = KubernetesCluster.__init__

    def counting(self: Any, transport: Any, settings: Any) -> None:
        attempt = transport._persist
        transport._persist = lambda request, call: (asked.append(words(request)), attempt(request, call))[1]
        persist(self, transport, settings)

    monkeypatch.setattr(KubernetesCluster, "__init__", counting)
    assert len(torchq("job", "wait", *names).stdout.splitlines()) == 100
    assert asked[0] == "LIST torchjobs"
    assert set(asked[1:]) <= {"WATCH torchjobs"}


def test_a_job_that_does_not_exist_is_named(torchq: Torchq, namespace: str) -> None:
    assert f"there is no job {namespace}/nobody" in torchq("job", "wait", "nobody", code=1).stderr
    assert torchq("job", "wait", f"{namespace}/nobody/u1", code=1).stdout == (
        f"{namespace}/nobody Deleted: the job was deleted\n"
    )
    assert "name the jobs" in torchq("job", "wait", code=2).stderr


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (("job", "wait", "train"), "coordinator.follow.job_feed.Inbox.take"),
        (("job", "logs", "-f", "train"), "coordinator.cli.jobs.job_output._print"),
        (("job", "list", "-w"), "coordinator.follow.job_feed.Inbox.take"),
        (("job", "show", "train"), "coordinator.wording.job_context.read"),
    ],
)
def test_ctrl_c_is_quiet_and_has_its_exit_code(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    call: str,
) -> None:
    make(embedded_cluster, namespace, "train")
    before = set(threading.enumerate())

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(call, interrupt)
    result = torchq(*command, code=130)
    assert "Aborted" not in result.output
    assert "Traceback" not in result.output
    # The API server of the test reads logs in its own threads, which continue to exist.
    until(
        lambda: [each.name for each in set(threading.enumerate()) - before if not each.name.startswith("asyncio_")],
        lambda names: not names,
    )
