"""Starts a private kube-apiserver on a private etcd, with torchq's definitions and accounts.

One rule: both servers listen on loopback only and store their data in the benchmark's folder. RBAC is on, so that
torchq's processes have exactly the permissions of deploy/rbac.
"""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bench.errors import BenchError
from bench.support.processes import Bench
from coordinator.local import stack
from coordinator.rbac import account_manifests
from coordinator.rbac.account_manifests import RoleNames
from coordinator.rbac.permissions import STANDING, Role
from crds.api_resources import NAMESPACES, Resource
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings

START_SECONDS = 120.0
_TOKEN_SECONDS = 86_400
_ADMIN = "bench-admin"
_KINDS = {
    "Namespace": NAMESPACES,
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    **{
        kind: Resource(
            account_manifests.RBAC, "v1", f"{kind.lower()}s", kind, namespaced=not kind.startswith("Cluster")
        )
        for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    },
}


@dataclass(frozen=True, slots=True)
class RealServer:
    """A running API server."""

    url: str
    folder: Path
    admin: KubernetesCluster

    def kubeconfig(self, role: Role) -> Path:
        """Write a kubeconfig for a role's account, with a token of the server, and return its path."""
        name = account_manifests.full_name(role)
        tokens = Resource("", "v1", f"serviceaccounts/{name}/token", "TokenRequest")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        token = self.admin.create(tokens, body, account_manifests.SYSTEM_NAMESPACE)
        return _kubeconfig(self.folder, self.url, name, token["status"]["token"])


def start(bench: Bench, assets: Path) -> RealServer:
    """Start both programs; return once the definitions are served and the accounts exist. Raises BenchError."""
    for name in ("etcd", "kube-apiserver"):
        if not (assets / name).exists():
            raise BenchError(f"no {name} in {assets}; set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd")
    client_port, peer_port, port = (bench.port() for _ in range(3))
    _start_etcd(bench, assets, client_port, peer_port)
    _start_apiserver(bench, assets, client_port, port)
    url = f"https://127.0.0.1:{port}"
    bench.wait((bench.folder / "certificates" / "apiserver.crt").exists, "kube-apiserver", START_SECONDS)
    path = _kubeconfig(bench.folder, url, "admin", _ADMIN)
    admin = client.connect(ConnectionSettings(kubeconfig=str(path), user_agent="bench"))
    bench.wait(lambda: _ready(admin), "kube-apiserver", START_SECONDS)
    stack.install(admin)
    for role in STANDING.values():
        for document in account_manifests.role_manifests(role, RoleNames()):
            _apply(admin, document)
    return RealServer(url, bench.folder, admin)


def _start_etcd(bench: Bench, assets: Path, client_port: int, peer_port: int) -> None:
    urls = {
        "listen-client-urls": client_port,
        "advertise-client-urls": client_port,
        "listen-peer-urls": peer_port,
    }
    listen = [f"--{name}=http://127.0.0.1:{port}" for name, port in urls.items()]
    command = [str(assets / "etcd"), "--data-dir", str(bench.folder / "etcd"), "--unsafe-no-fsync", *listen]
    bench.start("etcd", command, at_death=signal.SIGKILL)


def _start_apiserver(bench: Bench, assets: Path, etcd_port: int, port: int) -> None:
    folder = bench.folder
    key = folder / "service-account.key"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    (folder / "tokens.csv").write_text(f'{_ADMIN},admin,admin,"system:masters"\n')
    flags = {
        "etcd-servers": f"http://127.0.0.1:{etcd_port}",
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder / "certificates",
        "authorization-mode": "RBAC",
        "token-auth-file": folder / "tokens.csv",
        "service-account-issuer": "https://127.0.0.1",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "service-cluster-ip-range": "10.0.0.0/16",
        "disable-admission-plugins": "ServiceAccount",
        "enable-admission-plugins": "OwnerReferencesPermissionEnforcement",
        "endpoint-reconciler-type": "none",
        "profiling": "false",
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    # Without the etcd of the server, only SIGKILL ends kube-apiserver.
    bench.start("kube-apiserver", [str(assets / "kube-apiserver"), *arguments], stage=1, at_death=signal.SIGKILL)


def _kubeconfig(folder: Path, url: str, name: str, token: str) -> Path:
    authority = str(folder / "certificates" / "apiserver.crt")
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url, "certificate-authority": authority}}],
        "users": [{"name": "bench", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    path = folder / f"{name}.kubeconfig"
    path.write_bytes(orjson.dumps(config))
    return path


def _ready(admin: KubernetesCluster) -> bool:
    try:
        names = {namespace["metadata"]["name"] for namespace in admin.list(NAMESPACES).items}
    except errors.ClusterError:
        return False
    return {"default", "kube-system"} <= names


def _apply(admin: KubernetesCluster, document: dict[str, Any]) -> None:
    try:
        admin.create(_KINDS[document["kind"]], document, document["metadata"].get("namespace", ""))
    except errors.AlreadyExists:
        return  # every role includes the namespace that it needs
