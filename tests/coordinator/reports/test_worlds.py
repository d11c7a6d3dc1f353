"""The world that training code requests: the numbers of its job, as the workers of torchq count them."""

from typing import Any

import pytest

from coordinator.reports import worlds
from crds.torchjob.torchjob import TorchJob
from tests.support.reconcilers.builders import ADMISSION, job, status, task

HOSTS = [{"host": f"digits-{name}", "slots": 1} for name in ("master-0", "worker-0", "worker-1")]
SINCE = "2026-01-02T03:00:00Z"


def described(
    workers: int = 3, mode: str = "InPlaceRestart", spec: dict[str, Any] | None = None, **more: Any
) -> TorchJob:
    """Return an elastic job with a Master and two workers; at most four workers."""
    admission = ADMISSION | {"workers": 2, "grown": 0}
    tasks = {"Master": task(), "Worker": task(workers, dependsOn=[])}
    policy = {"numMinReplicas": 1, "numMaxReplicas": 4, "mode": mode}
    return job(tasks, status=status("Running", admission=admission, **more), torchElasticPolicy=policy, **(spec or {}))


def test_a_world_counts_pods_and_the_target_workers() -> None:
    found = worlds.document(described(restartGeneration=7), "digits-worker-1")
    numbers = {"size": 3, "rank": 2, "min": 1, "max": 4, "generation": 7, "target": 3}
    assert found == numbers | {"hosts": HOSTS}
    target = {"workers": 1, "reason": "GiveBack", "since": SINCE, "wish": 3}
    assert worlds.document(described(target=target), "digits-master-0") | {"rank": 0, "target": 1} == found | {
        "rank": 0,
        "target": 1,
        "generation": 0,
    }


@pytest.mark.parametrize("pod", ["", "nobody", "digits-worker-2", "\x1b"])
def test_a_pod_that_the_job_has_not_got_has_no_rank(pod: str) -> None:
    found = worlds.document(described(), pod)
    assert (found["size"], found["rank"]) == (3, None)


def test_torchrun_chooses_the_ranks_at_a_rendezvous() -> None:
    found = worlds.document(described(mode="Rendezvous"), "digits-worker-1")
    assert (found["size"], found["rank"]) == (3, None)


def test_ranks_and_hosts_that_places_give_are_the_written_ones() -> None:
    found = job(status=status("Running", admission=ADMISSION | {"topology": ["rack"]}))
    ranks = {"digits-master-0": 0, "digits-worker-0": 2, "digits-worker-1": 1}
    world = worlds.document(found, "digits-worker-1", ranks.get)
    assert (world["rank"], world["hosts"]) == (1, [HOSTS[0], HOSTS[2], HOSTS[1]])
    for some in ({}, {"digits-worker-1": 1}, dict.fromkeys(ranks, 1)):
        assert worlds.document(found, "digits-worker-1", some.get)["hosts"] is None, "not all ranks are given yet"
    assert worlds.document(found, "digits-worker-1")["rank"] is None
    assert worlds.document(described(), "digits-worker-1", lambda _: 9)["rank"] == 2


def test_other_jobs_have_no_bounds() -> None:
    found = worlds.document(job(status=status("Running")), "digits-worker-1")
    numbers = {"size": 3, "rank": 2, "min": None, "max": None, "generation": 0, "target": 2}
    assert found == numbers | {"hosts": HOSTS}
    assert worlds.document(job(), "digits-worker-1")["size"] == 0, "the job is not admitted"


@pytest.mark.parametrize(
    ("workers", "seconds", "victims", "asked"),
    [(1, 60, [], True), (1, 0, [], False), (2, 60, [], False), (1, 60, ["digits-worker-1"], False)],
)
def test_a_request_to_save_is_in_the_world_until_pods_are_named(
    workers: int, seconds: int, victims: list[str], *, asked: bool
) -> None:
    scaling = {"from": 2, "to": 1, "since": SINCE, "victims": victims}
    found = described(workers, spec={"schedulingPolicy": {"checkpointSeconds": seconds}}, scaling=scaling)
    assert worlds.document(found, "").get("checkpoint") == (1767322800 if asked else None)
