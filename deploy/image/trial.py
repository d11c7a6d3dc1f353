"""The image's processes at work: a coordinator and a worker of the image run one job on an embedded cluster.

One rule: only the API server, the node and Redis are processes of this machine. The processes that admit the job and
make its pods come out of the image.
"""

import base64
import contextlib
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from coordinator.local import stack
from crds.api_resources import NODES, TORCHJOBS
from deploy.image.builders import Commands, ImageError, Run
from embedded.layout import Layout
from embedded.redis import server_program
from kube import client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings

_SECONDS = 90.0
_PAUSE_SECONDS = 0.05
_LAST_LINES = 12
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds its account: the token, the authority of the API server, and its own namespace."""
SECRET = "/etc/torchq/redis"
"""Where the processes find the URL of Redis, as in a pod that mounts it."""
_PROCESSES = ("coordinator", "worker")
_CONTAINER = {"name": "torch", "image": "none", "command": [sys.executable, "-c", "print('done')"]}
_REQUESTS = {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
_TASK = {"template": {"spec": {"containers": [_CONTAINER | _REQUESTS]}}}
_JOB = {
    "apiVersion": TORCHJOBS.api_version,
    "kind": TORCHJOBS.kind,
    "metadata": {"name": "trial"},
    "spec": {"schedulingPolicy": {"queue": "default"}, "torchTaskSpecs": {"Master": _TASK}},
}


class Trial:
    """The processes of one trial, and the folder with their files."""

    def __init__(self, folder: Path) -> None:
        self._layout = Layout(folder / "data")
        self._layout.root.mkdir(mode=0o700)
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._folders = {ACCOUNT: folder / "account", SECRET: folder / "redis"}
        for each in self._folders.values():
            each.mkdir()
        self._address: dict[str, str] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {name: _free_port() for name in (*_PROCESSES, "redis")}

    def start_cluster(self) -> str:
        """Start API server, Redis and node, and write the files by which a pod finds these servers. Return the started
        processes.
        """
        root, kubeconfig = str(self._layout.root), str(self._layout.kubeconfig)
        self._python("apiserver", "embedded.apiserver.api_server", "--data", root, "--port", "0")
        password = secrets.token_hex(16)
        url = f"redis://:{password}@127.0.0.1:{self._ports['redis']}/0"
        settings = {"bind": "127.0.0.1", "port": self._ports["redis"], "requirepass": password, "save": '""'}
        settings |= {"maxmemory-policy": "noeviction", "dir": str(self._logs)}
        redis = self._start("redis", [server_program.server(), "-"], stdin=subprocess.PIPE)
        assert redis.stdin is not None
        redis.stdin.write("".join(f"{name} {value}\n" for name, value in settings.items()).encode())
        redis.stdin.close()
        self._until("the API server", self._layout.kubeconfig.exists)
        stack.install(self._api())
        size = ["--cpus", "1", "--memory", "1Gi", "--gpus", "0", "--stop-pods"]
        self._python("node", "embedded.node.node", "--data", root, "--kubeconfig", kubeconfig, *size)
        self._until("the node", lambda: self._api().list(NODES).items)
        self._until("Redis", lambda: server_program.answers(url))
        self._write_account(url)
        return "an embedded API server, a node and Redis, on loopback; the image finds them as in a pod"

    def start_process(self, name: str, commands: Commands, hidden: Sequence[str]) -> str:
        """Start the coordinator or the worker of the image, and return how long it took until it was ready."""
        environment = {
            **self._address,
            "TORCHQ_REDIS_URL_FILE": f"{SECRET}/url",
            "TORCHQ_METRICS_PORT": str(self._ports[name]),
            "TORCHQ_IMPLICIT_QUEUES": "true",
            "TORCHQ_MASTER_ADDRESS": "loopback",
            "TORCHQ_GANG_SCHEDULER": "none",
        }
        began = time.monotonic()
        self._start(name, commands(Run([name], environment=environment, folders=self._folders, hidden=hidden)))
        self._until(f"/readyz of the {name}", lambda: self._answers(name, "/readyz"))
        self._until(f"/healthz of the {name}", lambda: self._answers(name, "/healthz"))
        return f"/healthz and /readyz answered 200 after {time.monotonic() - began:.1f} s"

    def run_job(self) -> str:
        """Create one job and return the time until the job succeeded."""
        api, began = self._api(), time.monotonic()
        api.create(TORCHJOBS, _JOB, "default")

        def phase() -> str:
            return str((api.get(TORCHJOBS, "trial", "default").get("status") or {}).get("phase"))

        self._until("the job", lambda: phase() in ("Succeeded", "Failed"))
        if phase() != "Succeeded":
            raise ImageError(f"the job ended as {phase()}")
        return f"a TorchJob was admitted, ran and succeeded after {time.monotonic() - began:.1f} s"

    def stop(self, name: str) -> str:
        """Stop the coordinator or the worker of the image as a kubelet does, and return how long that took."""
        process, began = self._processes.pop(name), time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(_SECONDS)
        if code != 0:
            raise ImageError(f"the {name} ended with code {code} after SIGTERM\n{self._log(name)}")
        if "Traceback" in (self._logs / name).read_text():
            raise ImageError(f"the {name} logged a traceback\n{self._log(name)}")
        return f"ended with code 0, {time.monotonic() - began:.1f} s after SIGTERM"

    def close(self) -> None:
        """Stop the running processes, the cluster last."""
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _write_account(self, redis_url: str) -> None:
        """Write the files by which a pod finds its API server and Redis."""
        kubeconfig = yaml.safe_load(self._layout.kubeconfig.read_text())
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self._address = {"KUBERNETES_SERVICE_HOST": f"{address.hostname}", "KUBERNETES_SERVICE_PORT": f"{address.port}"}
        files = {
            self._folders[ACCOUNT] / "token": user["token"].encode(),
            self._folders[ACCOUNT] / "ca.crt": base64.b64decode(cluster["certificate-authority-data"]),
            self._folders[ACCOUNT] / "namespace": b"default",
            self._folders[SECRET] / "url": redis_url.encode(),
        }
        for path, content in files.items():
            path.write_bytes(content)
            path.chmod(0o644)  # for the user of the image; only this user may enter the folder above

    def _api(self) -> KubernetesCluster:
        return client.connect(ConnectionSettings(kubeconfig=str(self._layout.kubeconfig)))

    def _python(self, name: str, module: str, *arguments: str) -> None:
        self._start(name, [sys.executable, "-m", module, *arguments])

    def _start(self, name: str, command: Sequence[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        # Settings of whoever runs this are not for the trial.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TORCHQ_")}
        with (self._logs / name).open("wb") as log:
            process = self._processes[name] = subprocess.Popen(
                command, stdin=stdin, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        return process

    def _answers(self, name: str, path: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[name], timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _until(self, what: str, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + _SECONDS
        while not condition():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ImageError(f"the {name} ended with code {process.returncode}\n{self._log(name)}")
            if time.monotonic() > deadline:
                logs = "\n".join(f"{name}: {self._log(name)}" for name in _PROCESSES if name in self._processes)
                raise ImageError(f"waited {_SECONDS:.0f} s in vain for {what}\n{logs}")
            time.sleep(_PAUSE_SECONDS)

    def _log(self, name: str) -> str:
        return "\n".join((self._logs / name).read_text(errors="replace").splitlines()[-_LAST_LINES:])


@contextlib.contextmanager
def trial() -> Iterator[Trial]:
    """Make the folder of a trial; at the end, stop its processes and delete the folder."""
    with tempfile.TemporaryDirectory(prefix="torchq-image-") as folder:
        made = Trial(Path(folder))
        try:
            yield made
        finally:
            made.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
