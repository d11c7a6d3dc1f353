"""Processes on a real API server, each under its own account: missing permissions, quotas, and the rights of users."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.rbac import account_manifests
from coordinator.rbac.permissions import COORDINATOR, DOCTOR, USER, WORKER, Role
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from queues import redis_keys
from tests.support.acceptance.jobs import job, python, recording
from tests.support.acceptance.real_stack import RealStack
from tests.support.acceptance.stack import CommandResult, Stack, fresh, run, until
from tests.support.rbac.access import CLUSTER_ROLES

pytestmark = pytest.mark.apiserver
ON_REAL = pytest.mark.parametrize("stack", ["real"], indirect=True)


@contextmanager
def without(stack: Stack, role: Role, target: str, verb: str) -> Iterator[None]:
    """Remove a verb from a ClusterRole during the block."""
    name = account_manifests.full_name(role)
    found = stack.api.get(CLUSTER_ROLES, name)["rules"]
    less = [
        rule | {"verbs": [each for each in rule["verbs"] if each != verb]} if rule["resources"] == [target] else rule
        for rule in found
    ]
    assert less != found
    stack.api.patch(CLUSTER_ROLES, name, {"rules": [rule for rule in less if rule["verbs"]]})
    try:
        yield
    finally:
        stack.api.patch(CLUSTER_ROLES, name, {"rules": found})


@ON_REAL
@pytest.mark.parametrize("role", [COORDINATOR, WORKER], ids=["coordinator", "worker"])
def test_a_process_without_its_permissions_ends_with_a_message(stack: RealStack, role: Role) -> None:
    environment = stack.serving(role) | stack.account(USER)
    said = run(role.name, cwd=stack.folder, environment=environment)
    assert said.code == 1
    assert said.out == ""
    [line] = [line for line in said.err.splitlines() if "not allowed" in line]
    assert "torchjobs" in line
    assert "watch pods" in line
    assert f"torchq rbac {role.name} | kubectl apply -f -" in line
    assert "Traceback" not in said.err


@ON_REAL
def test_a_job_reports_that_its_pods_are_forbidden_until_they_are_allowed(stack: RealStack) -> None:
    name = fresh()
    with without(stack, WORKER, "pods", "create"):
        until(lambda: _refused(stack, name + "-probe"))
        stack.submit(job(name, python("pass")))
        until(lambda: _reason(stack, name) == "PodsForbidden")
        shown = stack.torchq("job", "show", name)
        assert 'cannot create resource "pods"' in shown
        assert "deploy/rbac/worker.yaml" in shown
        log = stack.log("worker").read_text()
        assert 1 <= log.count(f"default/{name}/") <= 10
        assert "Traceback" not in log
        assert stack.phase(name) == "Admitted"
    stack.reach(name, "Succeeded")
    assert "PodsForbidden" not in stack.torchq("job", "show", name)


def _refused(stack: RealStack, name: str) -> bool:
    """Return whether the authorizer of the API server already forbids workers to create pods."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{account_manifests.SYSTEM_NAMESPACE}:{account_manifests.full_name(WORKER)}",
            "resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"},
        },
    }
    assert stack.server is not None
    _, answer = stack.server.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return not answer["status"]["allowed"]


def _reason(stack: RealStack, name: str) -> str:
    conditions = (stack.job(name).get("status") or {}).get("conditions") or []
    return next((each["reason"] for each in conditions if each["type"] == "Admitted"), "")


def _waits(stack: RealStack, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (stack.job(name).get("status") or {}).get("queue") or {}
    return found


@ON_REAL
def test_a_job_reports_an_exceeded_resource_quota_of_its_namespace(stack: RealStack) -> None:
    name, path = fresh(), "/api/v1/namespaces/default/resourcequotas"
    assert stack.server is not None
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    assert stack.server.send("POST", path, quota)[0] == 201
    # No quota controller runs here, so the test writes the status of the quota.
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    assert stack.server.send("PATCH", f"{path}/none/status", status, "application/merge-patch+json")[0] == 200
    try:
        stack.submit(job(name, python("pass")))
        until(lambda: _waits(stack, name).get("reason") == "NamespaceQuota")
        assert "pods: asks 1, used 0, hard 0" in _waits(stack, name)["message"]
        told = stack.torchq("job", "why", name)
        assert "NamespaceQuota" in told
        assert "ResourceQuota none of the namespace can never hold the job's pods: pods: asks 1, used 0" in told
        assert "ResourceQuota none" in stack.torchq("job", "show", name)
    finally:
        assert stack.server.send("DELETE", f"{path}/none")[0] == 200
    stack.reach(name, "Succeeded")


@ON_REAL
def test_an_invalid_template_that_submit_cannot_check_fails_the_job(stack: RealStack) -> None:
    """Users may not create pods, so `submit` cannot check their templates and leaves this check to the worker."""
    name = fresh()
    body = job(name, python("pass"))
    container = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["comand"] = container.pop("command")
    stack.submit(body)
    failed = stack.reach(name, "Failed")
    condition = next(each for each in failed["status"]["conditions"] if each["type"] == "Failed")
    assert condition["reason"] == "InvalidTemplate"
    assert "comand" in condition["message"]


@ON_REAL
def test_a_user_can_change_only_the_jobs_of_the_namespace(stack: RealStack) -> None:
    name = fresh()
    stack.submit(job(name, python("import time; time.sleep(600)")))
    stack.reach(name, "Running")
    for arguments in (
        ("--namespace", "kube-system", "submit", "-"),
        ("--namespace", "kube-system", "job", "list"),
        ("job", "list", "--all-namespaces"),
        ("job", "show", f"kube-system/{name}"),
    ):
        said = run(*arguments, cwd=stack.folder, environment=stack.environment, text=json.dumps(job("x", ["true"])))
        assert (said.code, said.out) == (1, ""), arguments
        assert "system:serviceaccount:default:torchq-user" in said.err
        assert "deploy/rbac/user.yaml" in said.err
    said = run("queue", "list", cwd=stack.folder, environment=stack.environment)
    assert said.code == 0  # every account may send this query to the coordinator
    assert "deploy/rbac/on-request/queue-admin.yaml" in said.err
    for arguments in (("queue", "create", "mine"), ("queue", "pause", "default")):
        said = run(*arguments, cwd=stack.folder, environment=stack.environment)
        assert (said.code, said.out) == (1, ""), arguments
        assert "deploy/rbac/on-request/queue-admin.yaml" in said.err
    stack.torchq("queue", "create", "default")
    said = run("queue", "list", "default", cwd=stack.folder, environment=stack.environment)
    assert said.out.splitlines()[1].split()[0] == "default"
    user = stack.connected(USER)
    for resource, change in ((TORCHJOBS, {"status": {"phase": "Succeeded"}}), (PODS, {"metadata": {"labels": {}}})):
        with pytest.raises(errors.Forbidden):
            user.patch(resource, name, change, "default", subresource="status")
    with pytest.raises(errors.Forbidden):
        user.patch(TENANT_QUEUES, "default", {"spec": {"weight": 9}})
    stack.torchq("job", "delete", name)
    until(lambda: not stack.exists(name))


@ON_REAL
def test_doctor_under_its_account_finds_and_repairs_damage(stack: RealStack, tmp_path: Path) -> None:
    name, gate = fresh("patient"), tmp_path / "gate"
    stack.submit(job(name, recording(tmp_path, gate=gate)))
    stack.reach(name, "Running")
    assert doctor(stack).code == 0
    with stack.redis() as connection:
        [held] = connection.hgetall(redis_keys.RESERVATIONS).values()
        connection.hset(redis_keys.RESERVATIONS, "default/ghost/u1", held)
    said = doctor(stack, "-o", "json")
    assert said.code == 1
    found = {(each["code"], each["subject"]) for each in json.loads(said.out)["disagreements"]}
    assert ("orphan-reservation", "default/ghost/u1") in found
    mended = doctor(stack, "--fix")
    assert mended.code == 0, mended
    assert "repaired on real: " in mended.out
    gate.touch()
    stack.reach(name, "Succeeded")
    stack.clear()
    assert doctor(stack).code == 0


def doctor(stack: RealStack, *arguments: str) -> CommandResult:
    """Run the doctor under its account, which may only read objects and query the leader. Return its result."""
    environment = stack.account(DOCTOR) | {"TORCHQ_REDIS_URL": stack.redis_url}
    said = run("doctor", "--settle", "2", *arguments, cwd=stack.folder, environment=environment)
    assert "Traceback" not in said.err + said.out, said
    return said
