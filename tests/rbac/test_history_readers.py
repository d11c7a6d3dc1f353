"""Who reads the history on a real API server: the accounts of two tenants, an admin's, and one without rights, each
through the proxy of the API server with its kubeconfig alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator.access.readers import ACCOUNT, AUDIENCE, HEADER, TOKEN_SECONDS
from coordinator.access.token_reviews import TokenReviews
from coordinator.cli import main
from coordinator.http import history_api
from coordinator.leader.election import SERVICE_ANNOTATION
from coordinator.rbac import account_manifests
from coordinator.rbac.account_manifests import LEASE_NAMESPACE, SYSTEM_NAMESPACE, Tenant
from coordinator.rbac.permissions import (
    QUEUE_ADMIN,
    RECORDER,
    RECORDER_LEASE,
    RECORDER_SERVICE,
    USER,
    proxied,
)
from coordinator.settings import Settings
from crds.api_resources import LEASES
from kube import errors
from kube.client import KubernetesCluster
from tests.doubles.memory_history import MemoryHistory
from tests.support import ports
from tests.support.coordinator.desk import remove
from tests.support.history_rows import hold, job
from tests.support.kube import proxied_service
from tests.support.rbac import access
from tests.support.rbac.access import TENANT, Granted
from tests.support.waiting import until

pytestmark = pytest.mark.apiserver
OTHER = "team-b"
START = 1_767_225_600
DELETED = "deleted"
"""A namespace that has a history, and does not exist any more."""
SPAN = ("--since", "2026-01-01", "--until", "2026-02-01")
COMMANDS = [
    ("history", *SPAN), ("history", "-A", "-o", "json", *SPAN), ("usage", "-o", "json", *SPAN),
    ("usage", "-A", "--by", "namespace", "-o", "json", *SPAN), ("usage", "--by", "user", "-o", "wide", *SPAN),
    ("history", f"of-{TENANT}", "-o", "json"), ("history", f"of-{OTHER}"), ("history", f"{OTHER}/of-{OTHER}"),
]  # fmt: skip


def words(team: str) -> tuple[str, ...]:
    """Return what only the history of a team has."""
    return f"uid-of-{team}", f"user-of-{team}", f"queue-of-{team}"


def history() -> MemoryHistory:
    store = MemoryHistory()
    for team in (TENANT, OTHER, DELETED):
        uid, user, queue = words(team)
        store.write(
            [
                job(uid, namespace=team, name=f"of-{team}", user=user, queue=queue, created=START),
                hold(uid, START, START + 3600, queue=queue),
            ]
        )
    store.record_until(START + 7200)
    return store


@pytest.fixture(scope="module")
def proxy(granted: Granted) -> Iterator[None]:
    """Run a recorder's server with the account of recorders, behind its Service."""
    for document in account_manifests.tenant_manifests(Tenant(namespace=OTHER)):
        access.apply(granted.server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})
        access.apply(granted.server, document)
    for name in ("nobody", "gone"):
        metadata = {"name": name, "namespace": TENANT}
        access.apply(granted.server, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    address, reviews = proxied_service.own_address(), TokenReviews(granted.cluster(RECORDER))
    with ports.reserve() as port:
        settings = Settings(health_address=address, health_port=port)
        with (
            history_api.serving(history, reviews, settings, lambda: START + 7200),
            proxied_service.behind(granted.admin, RECORDER_SERVICE, address, port),
        ):
            until(lambda: is_told(granted))
            yield


def is_told(granted: Granted) -> bool:
    """Return whether the API server is a proxy to the recorder already."""
    try:
        return bool(ask(granted.admin, "/v1/openapi.json"))
    except errors.ClusterError:
        return False


@pytest.fixture
def recorder(granted: Granted, proxy: None) -> Iterator[Granted]:
    """Let the Lease say where the recorder answers."""
    notes = {SERVICE_ANNOTATION: f"{SYSTEM_NAMESPACE}/{RECORDER_SERVICE}"}
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "spec": {}}
    granted.admin.create(LEASES, body | {"metadata": {"name": RECORDER_LEASE, "annotations": notes}}, LEASE_NAMESPACE)
    yield granted
    remove(granted.admin, LEASES, RECORDER_LEASE, LEASE_NAMESPACE)


def ask(cluster: KubernetesCluster, path: str, token: str = "") -> Any:
    return cluster.service(SYSTEM_NAMESPACE, proxied(RECORDER_SERVICE), path, {HEADER: token} if token else {})


def torchq(kubeconfig: Path, *arguments: str) -> Result:
    environment = {"TORCHQ_KUBECONFIG": str(kubeconfig), "TORCHQ_NAMESPACE": TENANT}
    result = CliRunner().invoke(main.main, arguments, env=environment, prog_name="torchq")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def kubeconfig(granted: Granted, folder: Path, namespace: str, account: str) -> Path:
    path = folder / f"{namespace}-{account}.kubeconfig"
    path.write_text(json.dumps(access.kubeconfig(granted.server, namespace, account)))
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_of_a_tenant_names_anything_of_the_other(recorder: Granted, command: tuple[str, ...]) -> None:
    said = torchq(recorder.kubeconfig(USER), *command)
    assert [word for word in words(OTHER) if word in said.output] == []
    assert said.exit_code == ("of-team-b" in " ".join(command)), said.output


def test_a_tenant_reads_its_own_history_and_the_admin_reads_all(recorder: Granted, tmp_path: Path) -> None:
    own = torchq(recorder.kubeconfig(USER), "history", f"of-{TENANT}", "-o", "json")
    assert (own.exit_code, json.loads(own.stdout)["uid"]) == (0, words(TENANT)[0])
    of_other = kubeconfig(recorder, tmp_path, OTHER, ACCOUNT)
    assert words(OTHER)[0] in torchq(of_other, "-n", OTHER, "history", f"of-{OTHER}", "-o", "json").stdout
    for command in (COMMANDS[1], COMMANDS[3]):
        said = torchq(recorder.kubeconfig(QUEUE_ADMIN), *command)
        assert said.exit_code == 0, said.output
        assert all(team in said.stdout for team in (TENANT, OTHER))


def test_a_tenant_is_refused_the_job_of_the_other(recorder: Granted) -> None:
    said = torchq(recorder.kubeconfig(USER), "history", f"{OTHER}/of-{OTHER}")
    assert said.exit_code == 1
    assert f"not allowed to create serviceaccounts/token 'torchq-user' in namespace {OTHER}" in said.output
    assert "the request has no token" in said.output


def test_the_history_of_a_deleted_namespace_is_read_by_an_admin_and_by_no_tenant(recorder: Granted) -> None:
    admin, user = recorder.kubeconfig(QUEUE_ADMIN), recorder.kubeconfig(USER)
    for command, word in ((("history", *SPAN), f"of-{DELETED}"), (("history", f"of-{DELETED}"), words(DELETED)[0])):
        told, refused = (torchq(each, *command[:1], "-n", DELETED, *command[1:]) for each in (admin, user))
        assert (told.exit_code, word in told.stdout) == (0, True), told.output
        assert refused.exit_code == 1
        assert f"not allowed to create serviceaccounts/token 'torchq-user' in namespace {DELETED}" in refused.output


def test_an_account_without_rights_is_told_which_one_it_lacks(recorder: Granted, tmp_path: Path) -> None:
    said = torchq(kubeconfig(recorder, tmp_path, TENANT, "nobody"), "history")
    assert said.exit_code == 1
    assert 'cannot get resource "leases"' in said.output
    assert "deploy/rbac/user.yaml" in said.output


def test_only_a_token_for_the_recorder_of_an_account_with_rights_is_taken(recorder: Granted) -> None:
    admin, path = recorder.admin, f"/v1/history/{TENANT}/of-{TENANT}"
    gone = admin.account_token(TENANT, "gone", AUDIENCE, TOKEN_SECONDS)
    remove(admin, access.KINDS["ServiceAccount"], "gone", TENANT)
    good = admin.account_token(TENANT, ACCOUNT, AUDIENCE, TOKEN_SECONDS)
    assert ask(admin, path, good)["uid"] == words(TENANT)[0]
    refused = {"": "no token", gone: "does not accept", good[:-8] + "AAAAAAAA": "does not accept"}
    refused[admin.account_token(TENANT, ACCOUNT, "elsewhere", TOKEN_SECONDS)] = "does not accept"
    for token, reason in refused.items():
        with pytest.raises(errors.Unauthorized, match=reason):
            ask(admin, path, token)
    for token in (
        admin.account_token(TENANT, "nobody", AUDIENCE, TOKEN_SECONDS),
        admin.account_token(OTHER, ACCOUNT, AUDIENCE, TOKEN_SECONDS),
    ):
        with pytest.raises(errors.Forbidden, match="may list"):
            ask(admin, path, token)


def test_a_cluster_without_a_recorder_says_who_can_start_one(granted: Granted, proxy: None) -> None:
    said = torchq(granted.kubeconfig(USER), "history")
    assert said.exit_code == 1
    assert "no recorder keeps the history of this cluster" in said.output
    assert "recorder.enabled" in said.output


def test_a_lease_that_a_recorder_has_left_is_named(recorder: Granted) -> None:
    notes = {SERVICE_ANNOTATION: f"{SYSTEM_NAMESPACE}/torchq-gone"}
    recorder.admin.patch(LEASES, RECORDER_LEASE, {"metadata": {"annotations": notes}}, LEASE_NAMESPACE)
    said = torchq(recorder.server.kubeconfig, "history")
    assert said.exit_code == 1
    assert "no recorder answers: namespace torchq-system has no service torchq-gone" in said.output
