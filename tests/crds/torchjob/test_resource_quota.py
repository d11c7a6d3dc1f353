"""The amounts that a job needs from the ResourceQuotas of its namespace, and the shortages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob import resource_quota, torchjob
from crds.torchjob.resource_quota import Limit, NamespaceDemand, Quota, Scope
from crds.torchjob.torchjob import TorchJob
from tests.support.crds import builders

BIG = {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}, "limits": {"memory": "3Gi", "nvidia.com/gpu": "1"}}


def job(resources: dict[str, Any] | None = None, count: int = 4, **spec: Any) -> TorchJob:
    container = {"name": "torch", "image": "x", "resources": BIG if resources is None else resources}
    task = {"numTasks": count, "template": {"spec": {"containers": [container], **spec}}}
    return torchjob.parse(builders.job(torchTaskSpecs={"Worker": task}))


def read(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Quota:
    zeros = dict.fromkeys(hard, "0")
    status = {"hard": hard, "used": zeros | (used or {})}
    return resource_quota.read({"metadata": {"namespace": "n", "name": "q"}, "spec": spec, "status": status})


TABLE = [
    ("requests.cpu", "8", True),
    ("requests.cpu", "7999m", False),
    ("cpu", "8", True),
    ("cpu", "7", False),
    ("requests.memory", "12Gi", True),
    ("memory", "11Gi", False),  # without a request in the template, the limit counts as the request
    ("limits.memory", "12Gi", True),
    ("limits.memory", "12287Mi", False),
    ("limits.cpu", "0", True),  # the template has no limit, and limits added by a LimitRange are unknown
    ("requests.nvidia.com/gpu", "4", True),
    ("requests.nvidia.com/gpu", "3", False),
    ("requests.amd.com/gpu", "0", True),
    ("pods", "4", True),
    ("pods", "3", False),
    ("count/pods", "4", True),
    ("count/pods", "3", False),
    ("services", "1", True),
    ("services", "0", False),
    ("count/services", "0", False),
    ("configmaps", "0", True),
    ("requests.storage", "0", True),
    ("count/podgroups.scheduling.volcano.sh", "0", True),
    ("jobs", "0", True),
]


@pytest.mark.parametrize(("name", "hard", "holds"), TABLE)
def test_shortage_compares_each_limit_with_the_matching_amount(name: str, hard: str, holds: bool) -> None:
    needs = resource_quota.of_job(job())
    assert (resource_quota.shortage(needs, [read({name: hard})]) is None) == holds


def test_shortage_counts_used_amounts_and_treats_unknown_use_as_full() -> None:
    needs = resource_quota.of_job(job())
    assert resource_quota.shortage(needs, [read({"pods": "9"}, {"pods": "5"})]) is None
    short = resource_quota.shortage(needs, [read({"pods": "9"}, {"pods": "6"})])
    assert short is not None
    assert not short.is_permanent
    assert str(short) == "ResourceQuota q of the namespace has no room for the job's pods: pods: asks 4, used 6, hard 9"
    status = {"status": {"hard": {"pods": "9", "configmaps": "1"}, "used": {}}}
    unknown = resource_quota.read({"metadata": {"namespace": "n", "name": "q"}, **status})
    assert "pods: asks 4, used not known yet, hard 9" in str(resource_quota.shortage(needs, [unknown]))


def test_permanent_shortage_names_only_the_limits_that_are_too_small() -> None:
    short = resource_quota.shortage(resource_quota.of_job(job()), [read({"pods": "3", "cpu": "8"}, {"cpu": "1"})])
    assert short is not None
    assert short.is_permanent
    assert "can never hold the job's pods: pods: asks 4, used 0, hard 3" in str(short)
    assert "cpu" not in str(short)


def test_long_shortage_message_is_cut_between_words() -> None:
    names = [f"{letter * 200}.example/{letter * 60}" for letter in "abcd"]
    needs = NamespaceDemand(((resource_quota.TaskDemand(dict.fromkeys(names, 4)),),))
    limits = tuple(Limit(f"requests.{name}", 4, 4, name) for name in names)
    said = str(resource_quota.shortage(needs, [Quota("n", "q" * 253, limits)]))
    assert len(said) <= resource_quota.LONGEST
    assert said.endswith(" ...")
    whole = {"q" * 253, *(f"requests.{name}:" for name in names)}
    assert all(word in whole for word in said.split() if len(word) > 50)


def test_services_do_not_count_for_single_pods_or_a_shared_address() -> None:
    needs = resource_quota.of_job(job())
    assert resource_quota.shortage(needs, [read({"services": "0"})], services=False) is None
    alone = resource_quota.of_job(job(count=1))
    assert resource_quota.shortage(alone, [read({"services": "0"})]) is None


SCOPES = [
    ({"scopes": ["Terminating"]}, {}, False),
    ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, True),
    ({"scopes": ["NotTerminating"]}, {}, True),
    ({"scopes": ["NotTerminating"]}, {"activeDeadlineSeconds": 60}, False),
    ({"scopes": ["NotBestEffort"]}, {}, True),
    ({"scopes": ["BestEffort"]}, {}, False),
    ({"scopes": ["NotBestEffort", "Terminating"]}, {}, False),
    ({"scopes": ["CrossNamespacePodAffinity"]}, {}, False),
    ({"scopeSelector": ("Exists", [])}, {}, False),
    ({"scopeSelector": ("Exists", [])}, {"priorityClassName": "high"}, True),
    ({"scopeSelector": ("In", ["high", "low"])}, {"priorityClassName": "high"}, True),
    ({"scopeSelector": ("In", ["low"])}, {"priorityClassName": "high"}, False),
    ({"scopeSelector": ("NotIn", ["low"])}, {"priorityClassName": "high"}, True),
    ({"scopeSelector": ("NotIn", ["high"])}, {"priorityClassName": "high"}, False),
    ({"scopeSelector": ("DoesNotExist", [])}, {"priorityClassName": "high"}, False),
    ({"scopeSelector": ("Strange", [])}, {"priorityClassName": "high"}, False),
]


@pytest.mark.parametrize(("scoped", "spec", "counts"), SCOPES)
def test_scoped_quota_counts_only_if_it_surely_applies(
    scoped: dict[str, Any], spec: dict[str, Any], counts: bool
) -> None:
    if "scopeSelector" in scoped:
        operator, values = scoped["scopeSelector"]
        expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
        scoped = {"scopeSelector": {"matchExpressions": [expression]}}
    short = resource_quota.shortage(resource_quota.of_job(job(**spec)), [read({"pods": "0"}, **scoped)])
    assert (short is not None) == counts
    of_charge = resource_quota.of_charge(job(**spec).charge)
    assert resource_quota.shortage(of_charge, [read({"pods": "0"}, **scoped)]) is None, (
        "only the charge of the job is known"
    )


def test_best_effort_scopes_do_not_count_for_pods_without_requests() -> None:
    needs = resource_quota.of_job(job(resources={}))
    for scope in ("BestEffort", "NotBestEffort"):
        assert resource_quota.shortage(needs, [read({"pods": "0"}, scopes=[scope])]) is None


def test_stages_that_follow_each_other_are_not_added() -> None:
    first = {"numTasks": 3, "template": job().spec.tasks["Worker"].template}
    then = {**first, "numTasks": 2, "dependsOn": [{"taskType": "First", "phase": "Succeeded"}]}
    staged = torchjob.parse(builders.job(torchTaskSpecs={"First": first, "Then": then}))
    needs = resource_quota.of_job(staged)
    assert resource_quota.shortage(needs, [read({"pods": "3", "limits.memory": "9Gi"})]) is None
    assert resource_quota.shortage(needs, [read({"pods": "2"})]) is not None
    assert needs.services == 2


def test_limits_are_added_as_kubernetes_does() -> None:
    spec = {
        "initContainers": [
            {"name": "first", "image": "x", "resources": {"limits": {"memory": "5Gi"}}},
            {"name": "side", "image": "x", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}},
        ],
        "overhead": {"memory": "1Gi", "cpu": "1"},
    }
    needs = resource_quota.of_job(job(count=1, **spec))
    asks = resource_quota.demand_on(needs, read({"limits.memory": "0"}))
    assert asks["limits.memory"] == 6 << 30
    assert "limits.cpu" not in asks


@pytest.mark.parametrize(
    "hard",
    [{"cpu": "lots"}, {"cpu": None}, {"cpu": {}}, {"cpu": "-1"}, {f"count/x{number}": "0" for number in range(500)}],
)
def test_invalid_quota_limits_nothing(hard: dict[str, Any]) -> None:
    status = {"status": {"hard": hard, "used": {}}}
    found = resource_quota.read({"metadata": {"namespace": "n", "name": "q"}, **status})
    assert resource_quota.shortage(resource_quota.of_job(job()), [found]) is None
    assert len(found.limits) <= resource_quota.MOST_LIMITS


NAMES = st.sampled_from(["cpu", "requests.cpu", "memory", "pods", "count/pods", "nvidia.com/gpu", "jobs"])
LIMITS = st.lists(st.tuples(NAMES, st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=4)
CHARGES = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "jobs"]), st.integers(0, 9))


@given(CHARGES, st.lists(st.tuples(LIMITS, st.booleans()), max_size=3))
def test_holds_agrees_with_shortage_for_a_charge(
    charge: dict[str, int], drawn: list[tuple[list[tuple[str, int, int | None]], bool]]
) -> None:
    quotas = [
        Quota(
            "n",
            f"q{number}",
            tuple(Limit(name, hard, used, name.removeprefix("requests.")) for name, hard, used in limits),
            (Scope("NotTerminating"),) if scoped else (),
        )
        for number, (limits, scoped) in enumerate(drawn)
    ]
    whole = resource_quota.shortage(resource_quota.of_charge(charge), quotas)
    assert resource_quota.has_room(charge, quotas) == (whole is None)
    assert len(str(whole)) <= resource_quota.LONGEST


def test_messages_that_differ_only_in_used_amounts_are_the_same() -> None:
    needs = resource_quota.of_job(job())
    hard = {"pods": "6", "cpu": "9", "limits.memory": "20Gi"}

    def said(**used: str) -> str:
        return str(resource_quota.shortage(needs, [read(hard, {"pods": "3", **used})]))

    assert said() != said(pods="4")
    assert resource_quota.same_except_usage(said(), said(pods="4"))
    assert not resource_quota.same_except_usage(said(), said(cpu="5"))


def test_needs_of_a_charge_equal_those_of_its_job() -> None:
    one = job()
    quota = read({"cpu": "0", "pods": "0", "count/pods": "0", "requests.nvidia.com/gpu": "0"})
    by_charge = resource_quota.demand_on(resource_quota.of_charge(one.charge), quota)
    by_job = resource_quota.demand_on(resource_quota.of_job(one), quota, services=False)
    assert {name: by_job[name] for name in by_charge} == by_charge
    assert NamespaceDemand(((),)).services == 0
