"""The paths of the files in the data folder of an embedded cluster.

One rule: every path is made here, so that the API server, the node and the shim agree on it.
"""

from dataclasses import dataclass
from pathlib import Path

from crds.keys import JobKey


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one embedded cluster under one folder."""

    root: Path

    @property
    def database(self) -> Path:
        """The database of the API objects (SQLite)."""
        return self.root / "objects.sqlite"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of this cluster, with its token; mode 0600."""
        return self.root / "kubeconfig"

    @property
    def token(self) -> Path:
        """The bearer token that the API server requires; mode 0600."""
        return self.root / "token"

    def certificate(self, name: str) -> Path:
        """Return the certificate of the API server (`server`) or of the authority that issued it (`ca`)."""
        return self.root / "tls" / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the private key of a certificate; mode 0600."""
        return self.root / "tls" / f"{name}.key"

    @property
    def redis(self) -> Path:
        """The folder of the Redis server of this cluster: its socket, append-only file and log."""
        return self.root / "redis"

    def logs(self, process: str) -> Path:
        """Return the file with the output of one of the stack's processes."""
        return self.root / "logs" / f"{process}.log"

    def pod(self, uid: str) -> Path:
        """Return the folder with all files of one pod."""
        return self.root / "pods" / uid

    def volume(self, uid: str, volume: str) -> Path:
        """Return the folder of a volume that belongs to the pod."""
        return self.pod(uid) / "volumes" / volume

    def containers(self, uid: str) -> Path:
        """Return the folder with a folder for each container of a pod."""
        return self.pod(uid) / "containers"

    def container(self, uid: str, container: str, restart: int) -> Path:
        """Return the folder of one run of one container.

        The folder holds `output` (the log), the shim's `started` and `exited` files, and the container's `message`, if
        any.
        """
        return self.containers(uid) / container / str(restart)

    @property
    def outputs(self) -> Path:
        """The folder with the outputs of TorchJobs, in one folder for each namespace."""
        return self.root / "outputs"

    def output(self, job: JobKey) -> Path:
        """Return the folder of a TorchJob that outlives its pods and the job itself: nothing in this package removes
        the folder.
        """
        return self.outputs / job.namespace / f"{job.name}-{job.uid}"

    @property
    def job_logs(self) -> Path:
        """The folder with the logs of TorchJobs, in one folder for each namespace."""
        return self.root / "job-logs"

    def logs_of_job(self, job: JobKey) -> Path:
        """Return the folder with the ends of the logs of a TorchJob's pods that are gone; this folder is deleted with
        the job.
        """
        return self.job_logs / job.namespace / f"{job.name}-{job.uid}"
