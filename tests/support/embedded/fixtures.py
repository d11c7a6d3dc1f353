import subprocess
import sys
from collections.abc import Iterator

import pytest

from embedded.apiserver import api_server as apiserver
from embedded.layout import Layout
from embedded.node.node import running_node
from kube import client
from kube.settings import ConnectionSettings
from kube.stop import HURRY
from tests.support.embedded.stage import SETTINGS, Stage, StartNode
from tests.support.waiting import SECONDS, patient


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield a cluster without a node."""
    layout = Layout(tmp_path_factory.mktemp("cluster"))
    with apiserver.running(layout) as server:
        cluster = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
        try:
            yield Stage(cluster, layout, server.kubeconfig)
        finally:
            cluster.close()


@pytest.fixture(scope="module")
def stage(bare: Stage) -> Iterator[Stage]:
    """Yield a cluster with a node in this process."""
    with running_node(bare.cluster, bare.layout, SETTINGS):
        yield bare


@pytest.fixture
def start(bare: Stage) -> Iterator[StartNode]:
    """Yield a function that starts a node process. After the test, end all node processes and their pods."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "embedded.node.node", "--data", str(bare.layout.root)]
        command += ["--kubeconfig", str(bare.kubeconfig), "--cpus", "8", "--gpus", "2", "--stop-pods", *options]
        with (bare.layout.root / "node.log").open("ab") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return started[-1]

    yield begin
    for process in started:
        process.send_signal(HURRY)
        process.wait(patient(SECONDS))
