"""Trouble with the pods of a job that comes from outside: workers handle it without busy reconciles."""

import base64
import json
import re
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.api_resources import LEASES, NAMESPACES, PODS, TORCHJOBS
from kube import errors
from tests.support.acceptance.jobs import job, python, recording
from tests.support.acceptance.stack import Stack, fresh, until

MOST_REQUESTS = 7
"""The largest accepted number of requests of all workers during `BEATS` renewals of the leader's lease."""
BEATS = 2
FINALIZER = "example.com/not-yet"


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in found["status"]["conditions"] if each["type"] == kind)


def requests_of_workers(stack: Stack) -> int:
    """Return the number of requests that workers have sent to the API server, except watches."""
    server = yaml.safe_load(stack.layout.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(server["certificate-authority-data"]).decode()
    token = stack.layout.token.read_text().strip()
    asking = urllib.request.Request(server["server"] + "/metrics", headers={"Authorization": f"Bearer {token}"})
    trust = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(asking, context=trust) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("apiserver_request_total") and 'verb="WATCH"' not in line]
    return sum(int(line.rpartition(" ")[2]) for line in counts if re.search(r'client="[^"]*worker', line))


def calm(stack: Stack) -> None:
    """Check that workers send few requests while the leader renews its Lease several times."""
    before = requests_of_workers(stack)
    assert before, "no request of a worker was counted"
    seen = {_renewed(stack)}

    def beats() -> int:
        seen.add(_renewed(stack))
        return len(seen)

    until(beats, lambda count: count > BEATS)
    asked = requests_of_workers(stack) - before
    assert asked <= MOST_REQUESTS, f"{asked} requests in {BEATS} renewals of a lease"


def _renewed(stack: Stack) -> str:
    leases = stack.api.list(LEASES, "kube-system").items
    return str(max(each["spec"].get("renewTime") or "" for each in leases))


def test_the_first_container_decides_if_none_is_named_torch(stack: Stack) -> None:
    name = fresh()
    body = job(name, python("import sys; sys.exit('the first one failed')"), policy="ExitCode")
    containers = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"]
    containers.append({"name": "second", "image": "none", "command": python("pass")})
    stack.submit(body)
    failed = condition(stack.reach(name, "Failed"), "Failed")
    assert (failed["reason"], "the first one failed" in failed["message"]) == ("PodFailed", True), failed


def test_a_missing_program_fails_the_job_without_restarts(stack: Stack) -> None:
    name = fresh()
    stack.submit(job(name, ["no-such-program"], policy="OnFailure"))
    found = stack.reach(name, "Failed")
    assert "no-such-program" in condition(found, "Failed")["message"]
    assert found["status"].get("restartCount", 0) == 0
    calm(stack)


def test_a_finalizer_delays_a_suspension_without_busy_reconciles(stack: Stack, records: Path, tmp_path: Path) -> None:
    name, gate = fresh(), tmp_path / "gate"
    stack.submit(job(name, recording(records, gate=gate)))
    stack.reach(name, "Running")
    pod = stack.pods(name)[0]["metadata"]["name"]
    stack.api.patch(PODS, pod, {"metadata": {"finalizers": [FINALIZER]}}, "default")
    try:
        stack.torchq("job", "suspend", name)
        until(lambda: stack.api.get(PODS, pod, "default")["metadata"].get("deletionTimestamp"))
        calm(stack)
        assert stack.phase(name) != "Suspended", "the room of the job is not free yet"
    finally:
        stack.api.patch(PODS, pod, {"metadata": {"finalizers": None}}, "default")
    stack.reach(name, "Suspended")
    gate.touch()
    stack.torchq("job", "resume", name)
    stack.reach(name, "Succeeded")


def test_deleting_a_namespace_ends_its_running_job(stack: Stack, records: Path, tmp_path: Path) -> None:
    name, namespace = fresh(), fresh("space")
    stack.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    stack.api.create(TORCHJOBS, job(name, recording(records, gate=tmp_path / "gate"), workers=1), namespace)
    until(lambda: stack.api.get(TORCHJOBS, name, namespace), _is_running)
    stack.pods()
    stack.api.delete(NAMESPACES, namespace)
    until(lambda: _gone(stack, namespace))
    until(lambda: not stack.pod_processes())
    until(stack.is_settled)
    calm(stack)


def _is_running(found: dict[str, Any]) -> bool:
    return (found.get("status") or {}).get("phase") == "Running"


def _gone(stack: Stack, namespace: str) -> bool:
    try:
        stack.api.get(NAMESPACES, namespace)
    except errors.NotFound:
        return not stack.api.list(PODS, namespace).items
    return False


@pytest.mark.parametrize("place", ["hostPort", "MASTER_PORT"])
def test_two_jobs_with_one_port_run_one_after_the_other(
    stack: Stack, records: Path, tmp_path: Path, place: str
) -> None:
    bodies, gate = [], tmp_path / "gate"
    for name in (fresh(), fresh()):
        body = job(name, recording(records, gate=gate))
        container = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"][0]
        if place == "hostPort":
            container["ports"] = [{"containerPort": 18_080, "hostPort": 18_080}]
        else:
            container["env"] = [*container.get("env", ()), {"name": "MASTER_PORT", "value": "18080"}]
        bodies.append(body)
    names = [body["metadata"]["name"] for body in bodies]
    stack.submit(*bodies)
    until(lambda: [stack.phase(name) for name in names], lambda found: {"Running", "Queued"} == set(found))
    first, second = sorted(names, key=lambda name: stack.phase(name) != "Running")
    taken = f"port 18080 is taken by job default/{first}"
    until(lambda: stack.torchq("job", "why", second), lambda said: taken in said)
    third = {**bodies[0], "metadata": {"name": fresh()}}
    said = stack.try_run("submit", "--dry-run", "-", text=json.dumps(third))
    assert taken in said.err
    assert not stack.pods(second)
    gate.touch()
    for name in names:
        stack.reach(name, "Succeeded")
