"""Messages of Kubernetes' admission plugin ResourceQuota, and whether a job may run with its existing pods."""

from dataclasses import replace
from typing import Any

import pytest

from crds.torchjob.status import QueueStatus
from crds.torchjob.torchjob import parse
from reconcilers.plan import over_quota
from reconcilers.values import OverQuota
from tests.support.reconcilers.builders import NOW, manifest, pod, task

BEGIN = 'not allowed to create pods in namespace team: pods "digits-worker-1" is forbidden: '
EXCEEDED = "exceeded quota: compute, requested: limits.memory=2Gi,pods=1, used: limits.memory=3Gi,pods=4, "
WORDS = [
    (EXCEEDED + "limited: limits.memory=4Gi,pods=4", "compute", {"limits.memory": "4Gi", "pods": "4"}),
    (
        "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, "
        "limited: requests.nvidia.com/gpu=4",
        "gpus",
        {"requests.nvidia.com/gpu": "4"},
    ),
    (
        "failed quota: compute: must specify limits.cpu for: torch,side; limits.memory for: side",
        "compute",
        {"limits.cpu": "for: torch,side", "limits.memory": "for: side"},
    ),
    ("status unknown for quota: new, resources: count/pods,pods", "new", {"count/pods": "", "pods": ""}),
    ("insufficient quota to match these scopes: [{PriorityClass In [high]}]", "", {}),
]


@pytest.mark.parametrize(("said", "name", "hard"), WORDS)
def test_parse_refusal_returns_quota_and_limits(said: str, name: str, hard: dict[str, str]) -> None:
    assert over_quota.parse_refusal(BEGIN + said) == OverQuota(name, hard, said)


@pytest.mark.parametrize(
    "said",
    [
        "maximum cpu usage per Container is 1, but limit is 2",
        'User "x" cannot create resource "pods" in API group "" in the namespace "team"',
        'violates PodSecurity "restricted:latest": privileged',
        "unable to create new content in namespace team because it is being terminated",
        "",
    ],
)
def test_parse_refusal_ignores_other_refusals(said: str) -> None:
    assert over_quota.parse_refusal(BEGIN + said) is None


def test_recorded_refusal_fits_into_status() -> None:
    limits = ",".join(f"count/{'x' * 400}{number}={'9' * 400}" for number in range(200))
    found = over_quota.parse_refusal(
        f"exceeded quota: {'q' * 900}, requested: {limits}, used: {limits}, limited: {limits}"
    )
    assert found is not None
    noted = over_quota.count_refusal(parse(manifest()), found)
    assert QueueStatus.model_validate(noted.manifest()) == noted


def refused(**hard: str) -> OverQuota:
    return OverQuota("compute", hard, "exceeded quota: compute")


def test_refusals_are_counted_until_limit_changes() -> None:
    job = parse(manifest())
    once = over_quota.count_refusal(job, refused(pods="4"))
    known = job.model_copy(update={"status": job.status.model_copy(update={"queue": once})})
    again = over_quota.count_refusal(known, refused(pods="4"))
    assert once.refused_by is not None
    assert again.refused_by is not None
    assert (once.refused_by.times, again.refused_by.times) == (1, 2)
    changed = over_quota.count_refusal(known, refused(pods="5", cpu="4")).refused_by
    assert changed is not None
    assert changed.times == 1
    for other in (refused(cpu="4"), OverQuota("more", {"pods": "4"}, ""), OverQuota("more", {"pods": "5"}, "")):
        further = over_quota.count_refusal(known, other).refused_by
        assert further is not None
        assert further.times == 2, "two ResourceQuotas that refuse in turn still make the pauses grow"


@pytest.mark.parametrize("times", [1, 2, 7, 8, 1000, 2**40])
def test_pauses_grow_up_to_the_longest_pause(times: int) -> None:
    noted = over_quota.count_refusal(parse(manifest()), refused(pods="4")).refused_by
    assert noted is not None
    after = over_quota.send_back(parse(manifest()), noted.model_copy(update={"times": times}), "said", NOW).queue
    assert after is not None
    assert after.not_before is not None
    seconds = (after.not_before - NOW).total_seconds()
    most = min(over_quota.LONGEST_PAUSE, over_quota.PAUSE * 2.0 ** (times - 1 if times < 64 else 64))
    assert 0.75 * most - 1 <= seconds <= most


def test_a_job_that_lacks_what_the_quota_demands_is_not_tried_again_within_seconds() -> None:
    lacking = over_quota.parse_refusal(BEGIN + "failed quota: compute: must specify limits.cpu for: torch")
    assert lacking is not None
    after = over_quota.send_back(
        parse(manifest()), over_quota.count_refusal(parse(manifest()), lacking).refused_by, "said", NOW
    ).queue
    assert after is not None
    assert after.not_before is not None
    assert (after.not_before - NOW).total_seconds() >= 0.75 * over_quota.UNSPECIFIED_PAUSE


def test_job_may_run_with_its_minimum_of_pods() -> None:
    spec: dict[str, Any] = {"Master": task(), "Worker": task(3, dependsOn=[])}
    whole, fewer = parse(manifest(spec)), parse(manifest(spec, minMembers={"Worker": 2}))
    pods = [pod("Master"), pod("Worker", 0), pod("Worker", 1)]
    assert not over_quota.may_run(whole, pods)
    assert over_quota.may_run(fewer, pods)
    assert not over_quota.may_run(fewer, pods[1:])
    assert not over_quota.may_run(fewer, [*pods[:2], replace(pods[2], phase="Failed")])
    assert not over_quota.may_run(fewer, [*pods[:2], replace(pods[2], deleting=True)])
    assert not over_quota.may_run(fewer, [*pods[:2], replace(pods[2], restart=7)])
    assert over_quota.may_run(whole, [*pods, pod("Worker", 2)])
