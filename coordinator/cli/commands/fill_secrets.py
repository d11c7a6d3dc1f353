"""`torchq fill-secrets`: gives the Secrets of an installation their random values.

One rule: a Secret that has its key stays as it is. Manifests that are rendered without a cluster cannot hold a random
value, as each render would have another one; their coordinators run this command before they start.
"""

import base64
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from coordinator.cli.session import Session, pass_session
from coordinator.errors import CoordinatorError
from crds.api_resources import Resource
from kube import errors
from kube.api import Cluster
from queues.redis import acl

SECRETS = Resource("", "v1", "secrets", "Secret")
URL, ACCOUNTS, REPORT_KEY = "url", "users.acl", "key"
"""The keys of the Secret of Redis and of the Secret of reports."""
_BYTES = 32
_TRIES = 5
FILE_SECONDS = 300.0
"""The longest wait for a file. A kubelet takes a minute or two to show a changed Secret to a pod that is there."""
_PAUSE_SECONDS = 0.5


@click.command("fill-secrets", hidden=True)
@click.option("--redis", "redis_secret", metavar="SECRET", help="Secret, and Service, of the bundled Redis")
@click.option("--reports", "reports_secret", metavar="SECRET", help="Secret with the key of reports")
@click.option("--wait-for", "files", multiple=True, type=click.Path(path_type=Path), help="file that shows a value")
@pass_session
def fill_secrets(
    session: Session, /, redis_secret: str | None, reports_secret: str | None, files: tuple[Path, ...]
) -> None:
    """Make the values of Secrets that have none, and wait until they are files of this pod."""
    namespace = session.namespace
    if redis_secret:
        host = f"{redis_secret}.{namespace}.svc"
        _report(redis_secret, fill(session.cluster, namespace, redis_secret, redis_values(host)))
    if reports_secret:
        _report(reports_secret, fill(session.cluster, namespace, reports_secret, {REPORT_KEY: _random()}))
    wait_for(files)


def redis_values(host: str) -> dict[str, str]:
    """Return the URL with a new password, and the ACL file of a server that knows this password alone."""
    password = _random()
    accounts = "\n".join((acl.DEFAULT_USER_OFF, acl.WRITER.acl_line(password), ""))
    return {URL: f"redis://{acl.WRITER.name}:{password}@{host}:6379/0", ACCOUNTS: accounts}


def fill(cluster: Cluster, namespace: str, name: str, values: Mapping[str, str]) -> bool:
    """Write the values unless the Secret has the first one; return whether they were written. Raises ClusterError."""
    first = next(iter(values))
    for attempt in range(_TRIES):
        secret = cluster.get(SECRETS, name, namespace)
        if (secret.get("data") or {}).get(first):
            return False
        data: dict[str, Any] = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        version = secret["metadata"]["resourceVersion"]
        try:
            cluster.patch(SECRETS, name, {"data": data}, namespace, resource_version=version)
            return True
        except errors.Conflict:
            if attempt == _TRIES - 1:
                raise
    return False


def wait_for(files: Iterable[Path], seconds: float = FILE_SECONDS) -> None:
    """Wait until all files are there. Raises CoordinatorError, which names one that is not, at the deadline."""
    deadline = time.monotonic() + seconds
    for file in files:
        while not file.exists():
            if time.monotonic() >= deadline:
                raise CoordinatorError(f"the kubelet has not shown {file} for {seconds:.0f} s")
            time.sleep(_PAUSE_SECONDS)


def _random() -> str:
    return secrets.token_hex(_BYTES)


def _report(name: str, is_filled: bool) -> None:
    click.echo(f"secret {name}: {'filled' if is_filled else 'has its value'}")
