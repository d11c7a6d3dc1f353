"""The headers of a question to a coordinator, with a token of an account."""

from coordinator.access.readers import ACCOUNT, AUDIENCE, HEADER, TOKEN_SECONDS
from kube.client import KubernetesCluster


def headers(cluster: KubernetesCluster, namespace: str = "team", account: str = ACCOUNT) -> dict[str, str]:
    """Return the header with a new token. On an embedded API server, every account may list all jobs."""
    return {HEADER: cluster.account_token(namespace, account, AUDIENCE, TOKEN_SECONDS)}
