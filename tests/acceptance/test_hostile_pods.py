"""Pods that a user creates by hand with labels of torchq: they stop no process and use no quota of another tenant."""

from collections.abc import Callable
from typing import Any

import pytest

from crds import labels
from crds.api_resources import NAMESPACES, PODS, TENANT_QUEUES, TORCHJOBS
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

pytestmark = pytest.mark.timeout(300)

Make = Callable[..., Stack]
PROMPT = {
    "TORCHQ_LEASE_SECONDS": "4",
    "TORCHQ_RENEW_DEADLINE": "3",
    "TORCHQ_RENEW_SECONDS": "1",
    "TORCHQ_RESYNC_SECONDS": "3",
}
KEEP = "example.org/keep"


def pod(owner: dict[str, Any], queue: str, attempt: str) -> dict[str, Any]:
    """Return a pod that claims to belong to a job. No scheduler binds the pod, and a finalizer delays its deletion."""
    name, uid = owner["name"], owner["uid"]
    marks = {labels.JOB_UID: uid, labels.JOB_NAME: name, labels.QUEUE: queue, labels.ATTEMPT: attempt}
    metadata = {
        "name": fresh("hostile"),
        "labels": marks,
        "annotations": {labels.CHARGE: '{"cpu":64000}', labels.RESTARTS_HANDLED: "9" * 5000},
        "ownerReferences": [owner],
        "finalizers": [KEEP],
    }
    container = {"name": "c", "image": "any", "resources": {"requests": {"cpu": "64"}}}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_hostile_pods_neither_stop_the_coordinator_nor_use_the_quota_of_another_tenant(make_stack: Make) -> None:
    stack = make_stack(**PROMPT)
    assert stack.up("--cpus", "4").code == 0
    try:
        api, victim = stack.api, fresh("victim")
        spec = {"namespaces": ["default"], "quota": {"cpu": "2"}}
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": victim}}
        api.create(TENANT_QUEUES, {**body, "spec": spec})
        api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}})
        mine = job("mine", python("pass"), queue="evil", suspend=True)
        made = api.create(TORCHJOBS, mine, "evil")["metadata"]
        owner = {
            "apiVersion": TORCHJOBS.api_version,
            "kind": TORCHJOBS.kind,
            "name": "mine",
            "uid": made["uid"],
            "controller": True,
        }
        gone = {**owner, "name": "gone", "uid": "8d1f4d7e-2f53-4b73-9a41-6f3f4b2a0c11"}
        for attempt in ("9" * 60, "1", "2"):
            for each in (owner, gone):
                api.create(PODS, pod(each, victim, attempt), "evil")
        before = stack.kill("coordinator")
        after = until(lambda: stack.pids().get("coordinator"), lambda pid: pid not in (None, before))
        with stack.redis() as redis:
            redis.flushdb()  # so that the coordinator rebuilds the queues from the cluster
        name = fresh("honest")
        stack.submit(job(name, python("pass"), queue=victim))
        stack.reach(name, "Succeeded")
        with stack.redis() as redis:
            assert '"cpu":64000' not in (redis.hget("torchq:usage", victim) or "")
        assert stack.pids()["coordinator"] == after
    finally:
        for item in stack.api.list(PODS, "evil").items:
            stack.api.patch(PODS, item["metadata"]["name"], {"metadata": {"finalizers": None}}, "evil")
