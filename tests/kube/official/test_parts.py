"""Parts of the official client are imported without the rest, and the whole client still works."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.servers

RENEWAL = """
import sys
from kube import client
from kube.official import parts

assert not {"kubernetes", "kubernetes.dynamic", "requests", "requests_oauthlib", "oauthlib"} & sys.modules.keys()
loader = parts.config.kube_config
session = loader.OAuth2Session(client_id="me")
assert type(session).__module__ == "requests_oauthlib.oauth2_session", session
assert issubclass(loader.oauthlib.oauth2.rfc6749.errors.InvalidClientIdError, Exception)
"""
WHOLE = """
from kube import client
from kube.official import parts
import kubernetes

assert kubernetes.config is parts.config
assert kubernetes.client.CoreV1Api and kubernetes.dynamic.DynamicClient and kubernetes.watch.Watch
"""


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_loader_imports_the_libraries_of_oauth_only_when_it_renews_a_token() -> None:
    run(RENEWAL)


def test_whoever_imports_the_official_client_later_gets_all_of_it() -> None:
    run(WHOLE)
