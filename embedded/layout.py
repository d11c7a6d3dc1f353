"""Where the embedded cluster keeps things in its data folder.

One rule: every path is made here, so that the API server, the node and the shim agree on it.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one embedded cluster under one folder."""

    root: Path

    @property
    def database(self) -> Path:
        """The API objects (SQLite)."""
        return self.root / "objects.sqlite"

    @property
    def kubeconfig(self) -> Path:
        """How to reach this cluster, token included; mode 0600."""
        return self.root / "kubeconfig"

    @property
    def token(self) -> Path:
        """The bearer token the API server asks for; mode 0600."""
        return self.root / "token"

    def certificate(self, name: str) -> Path:
        """The certificate of the API server (`server`) or of the authority that made it (`ca`)."""
        return self.root / "tls" / f"{name}.crt"

    def key(self, name: str) -> Path:
        """The private key of a certificate; mode 0600."""
        return self.root / "tls" / f"{name}.key"

    @property
    def redis(self) -> Path:
        """The folder of a redis-server started for this cluster: its socket, append-only file and log."""
        return self.root / "redis"

    def logs(self, process: str) -> Path:
        """The output of one of the stack's processes."""
        return self.root / "logs" / f"{process}.log"

    def pod(self, uid: str) -> Path:
        """All files of one pod."""
        return self.root / "pods" / uid

    def volume(self, uid: str, volume: str) -> Path:
        """The folder of a volume that is the pod's own."""
        return self.pod(uid) / "volumes" / volume

    def container(self, uid: str, container: str, restart: int) -> Path:
        """The folder of one run of one container: `output` (its log), the shim's `started` and `exited`
        files, and the `message` the container may leave."""
        return self.pod(uid) / "containers" / container / str(restart)
