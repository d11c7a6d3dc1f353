"""`torchq fill-secrets`: the values that it writes, and the values that it leaves alone."""

import base64
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from coordinator.cli.commands import fill_secrets
from coordinator.errors import CoordinatorError
from deploy import generate
from deploy.chart import CHART
from kube import errors


class OneSecret:
    """An API server with one Secret. The values in `rivals` are written to it between a read and the next write."""

    def __init__(self, data: dict[str, str] | None = None, rivals: list[dict[str, str]] | None = None) -> None:
        self.data, self.rivals, self.version = data, rivals or [], 1

    def get(self, _resource: Any, name: str, namespace: str = "") -> Any:
        secret = {"metadata": {"name": name, "namespace": namespace, "resourceVersion": str(self.version)}}
        return secret | ({"data": self.data} if self.data is not None else {})

    def patch(self, _resource: Any, _name: str, patch: Any, _namespace: str = "", *, resource_version: str) -> Any:
        if self.rivals:
            self.data, self.version = self.rivals.pop(0), self.version + 1
        if resource_version != str(self.version):
            raise errors.Conflict("the object has been modified")
        self.data = (self.data or {}) | patch["data"]
        return {}

    def text(self, key: str) -> str:
        assert self.data is not None
        return base64.b64decode(self.data[key]).decode()


def _fill(secret: OneSecret) -> bool:
    values = fill_secrets.redis_values("torchq-redis.batch.svc")
    return fill_secrets.fill(secret, "batch", "torchq-redis", values)  # type: ignore[arg-type]


def test_an_empty_secret_gets_a_url_and_the_accounts_that_know_its_password() -> None:
    secret = OneSecret()
    assert _fill(secret)
    url = urlsplit(secret.text("url"))
    assert (url.scheme, url.username, url.hostname, url.port) == ("redis", "torchq", "torchq-redis.batch.svc", 6379)
    assert url.password is not None
    assert len(url.password) == 64
    assert url.password not in secret.text("users.acl")
    template = (CHART / "files" / "users.acl").read_text()
    digest = secret.text("users.acl").split("#")[1].split()[0]
    assert secret.text("users.acl") == template.replace("PASSWORD_SHA256", digest), (
        "the accounts are the accounts of the chart"
    )
    assert generate.accounts() == template


def test_a_secret_with_its_value_stays_as_it_is() -> None:
    secret = OneSecret({"url": "bWluZQ=="})
    assert not _fill(secret)
    assert secret.data == {"url": "bWluZQ=="}


def test_of_two_that_fill_a_secret_at_the_same_time_the_first_one_wins() -> None:
    secret = OneSecret(rivals=[{"url": "cml2YWw="}])
    assert not _fill(secret)
    assert secret.text("url") == "rival"


def test_a_secret_that_changes_again_and_again_is_given_up() -> None:
    with pytest.raises(errors.Conflict):
        _fill(OneSecret(rivals=[{"other": "eA=="}] * 9))


def test_two_secrets_get_two_passwords() -> None:
    one, two = OneSecret(), OneSecret()
    assert _fill(one)
    assert _fill(two)
    assert one.text("url") != two.text("url")


def test_a_pod_waits_until_the_values_are_its_files(tmp_path: Path) -> None:
    late = tmp_path / "url"
    timer = threading.Timer(0.05, late.touch)
    timer.start()
    fill_secrets.wait_for([late])
    timer.join()
    with pytest.raises(CoordinatorError, match=r"has not shown .*missing for 0 s"):
        fill_secrets.wait_for([late, tmp_path / "missing"], seconds=0)
