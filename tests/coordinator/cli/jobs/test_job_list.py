"""`torchq job list`: the order of jobs, filters, places in queues, and reasons."""

import json
import time
from typing import Any

import pytest

from coordinator.cli import api_client, output
from coordinator.cli.jobs import job_list
from coordinator.errors import CoordinatorError
from coordinator.follow.job_feed import Inbox
from coordinator.wording import job_columns
from crds import timestamps
from crds.api_resources import TORCHJOBS
from crds.torchjob.conditions import RANKS_REMEDY
from kube.client import KubernetesCluster
from tests.coordinator.cli.jobs.test_wait import end, make
from tests.support.coordinator.command import Torchq, table
from tests.support.coordinator.desk import manifest

WHEN = "2026-01-01T00:00:00Z"


class Places:
    """A coordinator that knows the places of jobs, and counts queries."""

    def __init__(self, **places: Any) -> None:
        self.places_by_uid = places
        self.asked: list[Any] = []

    def places(self, queues: Any) -> list[dict[str, Any]]:
        self.asked.append(set(queues))
        return [{"uid": uid, "position": at, "of": 7} for uid, at in self.places_by_uid.items()]


def test_a_list_shows_places_and_causes_for_one_question(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(embedded_cluster, namespace, "first", "second", "failed", "done")
    queue = {"name": "q", "reason": "WaitingForQuota", "message": "no quota"}
    embedded_cluster.patch(TORCHJOBS, "second", {"status": {"queue": queue}}, namespace, subresource="status")
    end(embedded_cluster, namespace, "failed", "Failed", "PodFailed")
    end(embedded_cluster, namespace, "done")
    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in embedded_cluster.list(TORCHJOBS).items}
    source = Places(**{uids["first"]: 1, uids["second"]: 3})
    monkeypatch.setattr(api_client, "find", lambda _: source)
    rows = table(torchq("job", "list", "--no-headers").stdout)
    assert {row[1]: " ".join(row[7:]) for row in rows} == {
        "first": "1 of 7",
        "second": "3 of 7 (WaitingForQuota)",
        "failed": "PodFailed: so",
        "done": "-",
    }
    assert source.asked == [{namespace}]
    wide = table(torchq("job", "list", "-o", "wide").stdout)[0]
    assert wide[-5:] == ["PRIORITY", "ATTEMPT", "RESTARTS", "USER", "REASON"]


@pytest.mark.parametrize(
    ("workers", "granted", "active", "expected"),
    [
        (2, 2, {"Worker": 2, "Rendezvous": 1}, "2/2"),
        (2, 4, {"Worker": 4, "Rendezvous": 1}, "4/4"),
        (4, 2, {"Worker": 2}, "2/4"),
    ],
    ids=["the store has no rank", "idle growth", "some are missing"],
)
def test_pods_are_those_with_ranks(workers: int, granted: int, active: dict[str, int], expected: str) -> None:
    job = {
        "metadata": {"name": "a"},
        "spec": {"torchTaskSpecs": {"Worker": {"numTasks": workers}, "Sidekick": {"auxiliary": True}}},
        "status": {
            "admission": {"workers": granted},
            "taskStatuses": {name: {"active": count} for name, count in active.items()},
        },
    }
    [pods] = [each for each in job_columns.job_columns(output.now(), {}) if each.title == "PODS"]
    assert pods.text(job) == expected


def test_a_list_without_a_coordinator_has_the_reasons_alone(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(embedded_cluster, namespace, "one")

    def refuse(_: Any) -> Any:
        raise CoordinatorError("away")

    monkeypatch.setattr(api_client, "find", refuse)
    result = torchq("job", "list", "--no-headers")
    assert (table(result.stdout)[0][7], result.stderr) == ("-", "")


def test_phases_and_labels_select(torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str) -> None:
    make(embedded_cluster, namespace, "one", team="a")
    make(embedded_cluster, namespace, "two", "three")
    end(embedded_cluster, namespace, "two", "Failed", "Cancelled")
    end(embedded_cluster, namespace, "three", "Running")

    def names(*options: str) -> list[str]:
        return [row[1] for row in table(torchq("job", "list", "--no-headers", *options).stdout)]

    assert sorted(names("--phase", "cancelled", "--phase", "Running")) == ["three", "two"]
    assert names("--phase", "Failed") == []
    assert names("-l", "team=a") == ["one"]


def test_a_list_leaves_out_what_ended_over_a_day_ago_and_says_how_many(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    make(embedded_cluster, namespace, "old", "older", "new", "waits")
    for name, ended in (("old", WHEN), ("older", WHEN), ("new", timestamps.format_time(time.time() - 3600))):
        end(embedded_cluster, namespace, name)
        status = {"status": {"completionTime": ended}}
        embedded_cluster.patch(TORCHJOBS, name, status, namespace, subresource="status")

    def names(*options: str) -> list[str]:
        return sorted(row[1] for row in table(torchq("job", "list", "--no-headers", *options).stdout))

    assert names() == ["new", "waits"]
    assert torchq("job", "list").stderr == "2 more ended over a day ago: --all-time shows them\n"
    assert names("--all-time") == ["new", "old", "older", "waits"]
    assert names("--phase", "Succeeded") == ["new", "old", "older"]
    assert len(json.loads(torchq("job", "list", "-o", "json").stdout)["items"]) == 4


def test_a_list_says_for_which_ranks_a_job_waits_and_after_a_while_what_limits_that() -> None:
    def reason(message: str) -> str:
        condition = {"type": "Running", "status": "True", "reason": "WaitsForRanks", "message": message}
        item = manifest("train") | {"status": {"phase": "Running", "admission": {}, "conditions": [condition]}}
        (column,) = (each for each in job_columns.job_columns(output.now(), {}) if each.title == "REASON")
        return column.text(item)

    assert reason("the job waits for rank 1") == "WaitsForRanks: the job waits for rank 1"
    late = reason(f"the job waits for rank 1 (pod train-worker-0); {RANKS_REMEDY}")
    assert late.startswith("WaitsForRanks: the job waits for rank 1")
    assert late.endswith("; activeDeadlineSeconds and successPolicy limit that")


def test_a_watched_list_is_shown_again_after_a_change(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(embedded_cluster, namespace, "one")
    take = Inbox.take
    looks = []

    def change(self: Inbox, timeout: float | None = None) -> Any:
        looks.append(timeout)
        if len(looks) == 1:
            end(embedded_cluster, namespace, "one")
            return take(self, 60)
        if timeout == 0:
            return take(self, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(Inbox, "take", change)
    monkeypatch.setattr(job_list, "SETTLE_SECONDS", 0)
    shown = torchq("job", "list", "-w", "--no-headers", code=130).stdout
    assert [row[3] for row in table(shown) if row] == ["Pending", "Succeeded"]


def said(kind: str, reason: str, message: str) -> dict[str, Any]:
    """Return the status of an admitted job with a condition."""
    told = {"type": kind, "status": "True", "reason": reason, "message": message}
    return {"phase": kind, "admission": {"attempt": 1}, "conditions": [told]}


@pytest.mark.parametrize(
    ("status", "spec", "reason"),
    [
        ({}, {}, "2 of 7"),
        ({}, {"schedulingPolicy": {"hold": True}}, "Held"),
        ({"queue": {"reason": "Held"}}, {}, "2 of 7"),
        ({}, {"suspend": True}, "-"),
        ({"phase": "Queued", "queue": {"reason": "ExceedsQuota"}}, {}, "2 of 7 (ExceedsQuota)"),
        ({"phase": "Running", "admission": {"attempt": 1}}, {}, "-"),
        ({"phase": "Running", "admission": {"attempt": 1}, "hang": {"pods": []}}, {}, "Hanging"),
        ({"phase": "Failed"}, {}, "-"),
        (said("Admitted", "PodGroupMissing", "no PodGroup"), {}, "PodGroupMissing: no PodGroup"),
        (said("Running", "GangNotWhole", "1 pod\nlacks"), {}, "GangNotWhole: 1 pod lacks"),
        (said("Admitted", "Restarting", "worker 1 failed"), {}, "-"),
    ],
)
def test_the_reason_of_a_job(status: dict[str, Any], spec: dict[str, Any], reason: str) -> None:
    job = manifest("train")
    job["metadata"] |= {"namespace": "team", "uid": "u1", "creationTimestamp": WHEN}
    job |= {"status": status, "spec": job["spec"] | spec}
    (column,) = [each for each in job_columns.job_columns(output.now(), {"u1": (2, 7)}) if each.title == "REASON"]
    assert column.text(job) == reason
