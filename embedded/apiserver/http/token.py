"""Access to the embedded API server: a client must know the token in the server's data folder.

One rule: the token is written to files of mode 0600 and nowhere else.
"""

import base64
import hmac
import json
import os
import secrets
from pathlib import Path

from embedded.layout import Layout
from kube import hosts

CONTEXT = "torchq-local"


class NotLoopback(ValueError):
    """The address is not a loopback address, and the embedded API server serves this machine only."""


def check_host(host: str) -> None:
    """Raise NotLoopback unless the address is a loopback address."""
    if not hosts.is_loopback(host):
        raise NotLoopback(f"the embedded API server listens on loopback only, not on {host!r}: use 127.0.0.1")


def token(layout: Layout) -> str:
    """Return this cluster's bearer token; the first call creates it."""
    if layout.token.exists():
        existing = layout.token.read_text().strip()
        if existing:
            return existing
    bearer = secrets.token_urlsafe(32)
    write_private(layout.token, bearer + "\n")
    return bearer


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    scratch.replace(path)


def kubeconfig(url: str, bearer: str, authority: bytes) -> str:
    """Return a kubeconfig for this cluster (JSON is YAML): address, token and certificate authority."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"token": bearer}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}],
    }
    return json.dumps(config, indent=2) + "\n"


def admits(header: str, bearer: str) -> bool:
    """Return whether an Authorization header carries the token. The scheme's name has no case (RFC 9110, 11.1): the
    official client writes `bearer` inside a pod."""
    kind, _, credential = header.partition(" ")
    shown = credential.encode(errors="surrogateescape")
    return kind.lower() == "bearer" and hmac.compare_digest(shown, bearer.encode())
