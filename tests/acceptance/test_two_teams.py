"""Two teams on a real API server, each with its account: no byte that one reads names a job of the other."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coordinator.access.readers import ACCOUNT, AUDIENCE, HEADER, READER_ACCOUNT, TOKEN_SECONDS
from coordinator.query.questions import ANOTHER
from coordinator.rbac import account_manifests
from coordinator.rbac.account_manifests import SYSTEM_NAMESPACE, Tenant
from coordinator.rbac.permissions import COORDINATOR, SERVICE, proxied
from crds.api_resources import NAMESPACES, TENANT_QUEUES, Resource
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support import ports
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.real_stack import RealStack
from tests.support.acceptance.stack import CommandResult, clean_environment, fresh, run, torchq_command, until
from tests.support.kube import proxied_service
from tests.support.rbac import access

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("stack", ["real"], indirect=True)]
PATHS = ("/status", "/v1/queues", "/v1/next?n=50", "/v1/next?n=50&roomy=1", "/v1/scale/plan", "/v1/status",
         "/v1/settings")  # fmt: skip


@dataclass
class Team:
    """A namespace with its account, its queue, a job that holds most of the pool, and one that waits."""

    stack: RealStack
    namespace: str
    secrets: tuple[str, ...] = ()

    @property
    def kubeconfig(self) -> Path:
        return self.stack.data / f"{self.namespace}.kubeconfig"

    def make(self) -> None:
        """Make the namespace, its account and its queue."""
        assert self.stack.server is not None
        access.apply(self.stack.server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        for document in account_manifests.tenant_manifests(Tenant(namespace=self.namespace)):
            access.apply(self.stack.server, document)
        config = access.kubeconfig(self.stack.server, self.namespace, ACCOUNT)
        self.kubeconfig.write_text(json.dumps(config))
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": self.namespace}}
        self.stack.api.create(TENANT_QUEUES, body | {"spec": {"namespaces": [self.namespace]}})

    def torchq(self, *arguments: str, text: str | None = None) -> CommandResult:
        environment = clean_environment(TORCHQ_KUBECONFIG=str(self.kubeconfig), TORCHQ_NAMESPACE=self.namespace)
        said = run(*arguments, cwd=self.stack.folder, environment=environment, text=text)
        assert "Traceback" not in said.err + said.out, said
        return said

    def submit(self) -> None:
        """Submit jobs of which few fit at once."""
        sleeps, names = python("import time; time.sleep(600)"), [fresh(f"of-{self.namespace}") for _ in range(3)]
        bodies = [job(name, sleeps, cpu="2", queue=self.namespace) for name in names]
        said = self.torchq("submit", "-", text="\n---\n".join(map(json.dumps, bodies)))
        assert said.code == 0, said
        handles = said.out.split()
        self.secrets = (self.namespace, *names, *(handle.rpartition("/")[2] for handle in handles))

    @property
    def account(self) -> KubernetesCluster:
        return client.connect(ConnectionSettings(kubeconfig=str(self.kubeconfig)))


@pytest.fixture
def teams(stack: RealStack) -> Iterator[tuple[Team, Team]]:
    one, other = (Team(stack, fresh("team")) for _ in range(2))
    for each in (one, other):
        each.make()
    for each in (one, other):
        until(lambda each=each: each.torchq("job", "list").code == 0)
        each.submit()
    until(lambda: len(json.loads(admin(stack, "next", "-A", "--roomy", "-o", "json").out)) >= 2)
    yield one, other
    stack.clear()
    for each in (one, other):
        stack.api.delete(NAMESPACES, each.namespace)


def admin(stack: RealStack, *arguments: str) -> CommandResult:
    """Run a command of an admin, who may do everything."""
    said = run(
        *arguments, cwd=stack.folder, environment=clean_environment(TORCHQ_KUBECONFIG=str(stack.layout.kubeconfig))
    )
    assert said.code == 0, said
    return said


def test_no_command_of_a_team_names_a_job_of_the_other(stack: RealStack, teams: tuple[Team, Team]) -> None:
    one, other = teams
    names = one.secrets[1:4]
    commands = ["next", "next -o json", "next --roomy -o json", "queue list -o json", f"queue show {one.namespace}",
                "scale plan -o json", "status -o json", "top --count 1", "config", "job list -o wide",
                *(f"job why {name}" for name in names), *(f"job why {name} -o json" for name in names)]  # fmt: skip
    said = {each: one.torchq(*each.split()) for each in commands}
    assert all("jobs are not named" not in each.err for each in said.values())
    named = {(text, secret) for text, each in said.items() for secret in other.secrets if secret in each.out + each.err}
    assert named == set()
    assert ANOTHER in said["next --roomy -o json"].out
    assert one.namespace in said["queue list -o json"].out
    everything = admin(stack, "next", "-A", "--roomy", "-o", "json").out
    assert all(each.namespace in everything for each in teams), "else the test finds nothing"


def test_a_question_about_a_job_of_the_other_team_is_refused(teams: tuple[Team, Team]) -> None:
    one, other = teams
    said = one.torchq("queue", "show", other.namespace)
    assert (said.code, said.out) == (1, "")
    lease = one.account.get(
        Resource("coordination.k8s.io", "v1", "leases", "Lease"), "torchq-coordinator", "kube-system"
    )
    assert lease["metadata"]["annotations"]
    with pytest.raises(errors.Forbidden):
        one.account.account_token(other.namespace, ACCOUNT, AUDIENCE, TOKEN_SECONDS)
    with pytest.raises(errors.Forbidden):
        one.account.account_token(SYSTEM_NAMESPACE, READER_ACCOUNT, AUDIENCE, TOKEN_SECONDS)


@pytest.fixture
def proxy(stack: RealStack) -> Iterator[None]:
    """Run a second coordinator as in a pod, behind a Service that the API server is a proxy to."""
    address = proxied_service.own_address()
    with ports.reserve() as port:
        settings = {"TORCHQ_HEALTH_ADDRESS": address, "TORCHQ_HEALTH_PORT": str(port)}
        stack.process("behind", *torchq_command("coordinator"), environment=stack.serving(COORDINATOR) | settings)
        with proxied_service.behind(stack.api, SERVICE, address, port):
            yield
        stack.end("behind")


def test_the_proxy_of_the_api_server_passes_the_token_and_answers_are_bounded_by_it(
    stack: RealStack, teams: tuple[Team, Team], proxy: None
) -> None:
    one, other = teams

    def ask(cluster: KubernetesCluster, path: str, token: str = "") -> Any:
        headers = {HEADER: token} if token else {}
        return cluster.service(SYSTEM_NAMESPACE, proxied(SERVICE), path, headers)

    until(lambda: answers(lambda: ask(stack.api, "/v1/next?n=50&roomy=1")["items"]))
    token = one.account.account_token(one.namespace, ACCOUNT, AUDIENCE, TOKEN_SECONDS)
    for path in (*PATHS, f"/v1/places?queues={one.namespace},{other.namespace}"):
        text = json.dumps(ask(one.account, path, token))
        assert [secret for secret in other.secrets if secret in text] == [], path
        text = json.dumps(ask(one.account, path))
        assert [secret for secret in (*one.secrets, *other.secrets) if secret in text] == [], path
    assert one.namespace in json.dumps(ask(one.account, "/v1/queues", token))
    why = f"/v1/jobs/{other.namespace}/{other.secrets[1]}/why"
    for shown in ("", token):
        with pytest.raises(errors.Forbidden):
            ask(one.account, why, shown)
    everything = stack.api.account_token(SYSTEM_NAMESPACE, READER_ACCOUNT, AUDIENCE, TOKEN_SECONDS)
    text = json.dumps(ask(one.account, "/v1/queues", everything))
    assert all(each.namespace in text for each in teams)
    with pytest.raises(errors.Unauthorized):
        ask(one.account, "/v1/queues", token[:-8] + "AAAAAAAA")


def answers(look: Any) -> Any:
    try:
        return look()
    except errors.ClusterError:
        return None
