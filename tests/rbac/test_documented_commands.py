"""The kubectl and torchq commands that README and docs give to users of a namespace, run under a tenant's role.

One rule: every command that the documents name is run here, and RBAC forbids none of them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coordinator.cli import main
from coordinator.rbac.permissions import USER
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from tests.support.coordinator.desk import clear, manifest, task
from tests.support.kubectl.command import Kubectl, needs_kubectl
from tests.support.rbac.access import TENANT, Access, Gated

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "operators.md"),
)
"""The pages with commands of users. docs/operators.md is for administrators."""
KUBECTL = {
    "get": [
        ("get", "scaleouts,scaleins"),
        ("get", "torchjobs"),
        ("get", "modelversions"),
        ("get", "torchjobs", "--watch", "--request-timeout=1s"),
    ],
    "describe": [("describe", "pod", "digits-worker-0"), ("describe", "torchjob", "digits")],
    "explain": [("explain", "torchjob.spec")],
    "logs": [("logs", "-f", "digits-worker-0")],
    "scale": [
        ("scale", "torchjob/digits", "--replicas", "4"),
        ("scale", "torchjob/digits", "--current-replicas", "4", "--replicas", "3"),
    ],
    "wait": [("wait", "torchjob/digits", "--for=condition=Running", "--timeout=30s")],
    "annotate": [
        ("annotate", "torchjob", "digits", 'train.distributed.io/links={"tracker": "https://example.org/42"}')
    ],
    "delete": [("delete", "torchjob", "digits")],
    "apply": [("apply", "-f", "-")],
}
"""The commands of a tenant by kubectl verb, in the order in which they run."""
NOT_FOR_TENANTS = {
    "kubectl get nodes": "an administrator's",
    "kubectl cordon": "an administrator's",
    "kubectl uncordon": "an administrator's",
    "kubectl drain": "an administrator's",
    "kubectl rollout": "an administrator's",
    "kubectl patch": "needs the right that put the finalizer there",
    "kubectl create secret": "needs the right to write Secrets of the namespace",
}


@pytest.fixture
def access_with_job(access: Access) -> Iterator[Access]:
    body = manifest("digits", TENANT, {"Master": task(), "Worker": task(2)}, torchElasticPolicy={}, suspend=True)
    access.admin.create(TORCHJOBS, body, TENANT)
    running = {"type": "Running", "status": "True", "reason": "Running", "message": "", "observedGeneration": 1}
    conditions = [running | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]
    access.admin.patch(TORCHJOBS, "digits", {"status": {"conditions": conditions}}, TENANT, subresource="status")
    pod = {"metadata": {"name": "digits-worker-0"}, "spec": {"containers": [{"name": "torch", "image": "none"}]}}
    access.admin.create(PODS, {"apiVersion": "v1", "kind": "Pod"} | pod, TENANT)
    queue = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": TENANT}}
    access.admin.create(TENANT_QUEUES, queue | {"spec": {"weight": 1}})
    yield access
    clear(access.admin)


@pytest.fixture
def tenant(access_with_job: Access, tmp_path: Path) -> Iterator[Kubectl]:
    """Yield kubectl with a tenant's account."""
    with access_with_job.config(USER, tmp_path) as kubeconfig:
        yield Kubectl(kubeconfig, tmp_path, TENANT, isinstance(access_with_job, Gated))


@needs_kubectl
@pytest.mark.parametrize("verb", KUBECTL)
def test_documented_kubectl_commands_are_not_forbidden(tenant: Kubectl, verb: str) -> None:
    body = manifest("another", TENANT)
    for command in KUBECTL[verb]:
        said = tenant.try_run(*command, body=body if verb == "apply" else None)
        # No node runs the pod here, so the pod has no log, and a watch ends at its timeout.
        assert said.code == 0 or verb in ("logs", "get"), said
        assert not re.search(r"forbidden|Unauthorized|cannot \w+ resource", said.err), said


@needs_kubectl
def test_kubectl_commands_beyond_the_role_of_a_tenant_are_forbidden(tenant: Kubectl) -> None:
    for command in (("delete", "pod", "digits-worker-0"), ("get", "torchjobs", "-A"), ("get", "nodes"),
                    ("patch", "torchjob", "digits", "--subresource=status", "--type=merge", "-p", "{}"),
                    ("scale", "torchjob/digits", "-n", "default", "--replicas", "4")):  # fmt: skip
        assert "cannot" in tenant.refused(*command), command


def test_every_documented_kubectl_verb_is_tested() -> None:
    """A verb that a document newly names fails this test until a test above runs it."""
    found: set[str] = set()
    for document in DOCUMENTS:
        for line in document.read_text().splitlines():
            mine = line
            for others in (*NOT_FOR_TENANTS, "kubectl apply -f -"):
                mine = mine.replace(others, "")
            found |= set(re.findall(r"(?:^|[`;] ?)kubectl ([a-z]+)\b", mine))
    assert {"scale", "wait", "describe"} <= found
    assert found - {"exec"} <= KUBECTL.keys(), "exec is refused on purpose"


def commands() -> list[tuple[str, ...]]:
    """Return the torchq commands of users who submit jobs."""
    looks: list[Any] = [("job", verb, "digits") for verb in ("show", "why", "position", "logs", "reports")]
    looks.append(("job", "wait", "digits", "--timeout", "0"))
    steps: list[Any] = [
        ("job", verb, "digits") for verb in ("hold", "resume", "suspend", "bump", "restart", "cancel", "delete")
    ]
    steps[3:3] = [("job", "scale", "digits", size) for size in ("3", "+1", "-1")]
    return [("job", "list"), ("job", "list", "--queue", TENANT), *looks, ("job", "move", "digits", TENANT), *steps,
            ("queue", "list"), ("queue", "list", TENANT), ("queue", "show", TENANT), ("next", "-n", "20"),
            ("status",)]  # fmt: skip


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_torchq_commands_of_tenants_are_not_forbidden(tenant: Kubectl, command: tuple[str, ...]) -> None:
    assert "not allowed" not in said(tenant, *command)


def test_a_list_beyond_the_namespace_is_refused_with_a_message(tenant: Kubectl) -> None:
    text = said(tenant, "job", "list", "-A")
    assert "not allowed" in text
    assert "Traceback" not in text


def said(tenant: Kubectl, *command: str) -> str:
    """Return what a torchq command prints under the tenant's account."""
    environment = {"TORCHQ_KUBECONFIG": str(tenant.kubeconfig), "TORCHQ_NAMESPACE": TENANT}
    result = CliRunner().invoke(main.main, command, env=environment, prog_name="torchq")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output
