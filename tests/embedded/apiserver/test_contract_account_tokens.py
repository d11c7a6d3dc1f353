"""Tokens of ServiceAccounts: made for an audience, reviewed by whom they are shown to, and of no use elsewhere."""

import pytest

from crds.api_resources import SERVICE_ACCOUNTS, TOKEN_REVIEWS
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.kube.servers import Server

ACCOUNT = "torchq-user"


@pytest.fixture
def token(server: Server, cluster: KubernetesCluster, namespace: str) -> str:
    """Return a token of an account of the namespace."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    cluster.create(SERVICE_ACCOUNTS, body, namespace)
    return cluster.account_token(namespace, ACCOUNT, "torchq", 600)


def review(cluster: KubernetesCluster, token: str, audience: str = "torchq") -> Manifest:
    body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind}
    status: Manifest = cluster.create(TOKEN_REVIEWS, body | {"spec": {"token": token, "audiences": [audience]}})[
        "status"
    ]
    return status


def test_a_review_names_the_account_and_the_audience(cluster: KubernetesCluster, namespace: str, token: str) -> None:
    status = review(cluster, token)
    assert (status["authenticated"], status["audiences"]) == (True, ["torchq"])
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:{ACCOUNT}"


def test_a_token_for_another_audience_or_a_changed_one_is_not_authenticated(
    cluster: KubernetesCluster, namespace: str, token: str
) -> None:
    assert not review(cluster, token, audience="another").get("authenticated")
    other = cluster.account_token(namespace, ACCOUNT, "another", 600)
    assert not review(cluster, other).get("authenticated")
    for forged in (token[:-6] + "AAAAAA", "x" + token, "nothing", token.partition(".")[0] + ".", "é.ü"):
        assert not review(cluster, forged).get("authenticated"), forged


def test_the_api_server_takes_no_token_of_another_audience(server: Server, token: str) -> None:
    code, _ = server.send("GET", "/api/v1/namespaces", Authorization=f"Bearer {token}")
    assert code == 401


def test_a_token_is_asked_for_with_a_body_of_json(server: Server, namespace: str) -> None:
    path = SERVICE_ACCOUNTS.path(namespace, ACCOUNT, "token")
    assert server.send("GET", path)[0] == 405
    assert server.send("POST", path, b"nonsense")[0] == 400
