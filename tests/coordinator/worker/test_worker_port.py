"""The one port of `torchq worker` and its processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from queues.redis import connection
from queues.storage.redis_store import RedisStore
from tests.support import ports, redis_server
from tests.support.acceptance.stack import clean_environment
from tests.support.coordinator.hangs import ask, failing
from tests.support.kube.servers import Server
from tests.support.waiting import SECONDS, patient, until

COMMAND = [sys.executable, "-m", "coordinator.cli.main", "worker", "--processes", "2"]


@pytest.mark.redis_server
def test_a_supervisor_answers_for_all_its_processes_and_no_second_one_takes_its_port(
    embedded_server: Server, tmp_path: Path
) -> None:
    with redis_server.running(tmp_path / "redis.sock") as redis, ports.reserve() as port:
        RedisStore(connection.connect(redis, client_name="test")).rebuild(1, [], [])
        environment = clean_environment() | {
            "TORCHQ_KUBECONFIG": str(embedded_server.kubeconfig),
            "TORCHQ_REDIS_URL": redis,
            "TORCHQ_METRICS_PORT": str(port),
        }
        url = f"http://127.0.0.1:{port}"
        with subprocess.Popen(COMMAND, env=environment, stderr=subprocess.DEVNULL) as worker:
            try:
                until(lambda: _is_ready(url))
                names = {line.split()[0].partition("]")[2] for line in ask(f"{url}/healthz?verbose")[1][:-1]}
                assert {"supervisor", "worker-0/batches", "worker-0/lease-keeper", "worker-1/batches"} < names
                second = subprocess.run(
                    COMMAND, env=environment, capture_output=True, text=True, timeout=patient(SECONDS), check=False
                )
                assert second.returncode == 1
                assert f"Error: metrics_port 127.0.0.1:{port}: Address already in use" in second.stderr
                assert "Traceback" not in second.stderr
                [first, _] = _children(worker.pid)
                os.kill(first, signal.SIGKILL)
                until(
                    lambda: failing(url, "readyz"), lambda lines: any("was ended by SIGKILL" in line for line in lines)
                )
            finally:
                worker.send_signal(signal.SIGTERM)
            assert worker.wait(patient(SECONDS)) == 0


def _is_ready(url: str) -> bool:
    try:
        return ask(f"{url}/readyz") == (200, ["ok"])
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
