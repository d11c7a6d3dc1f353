"""`torchq local down` sends the signal of its options, and refuses a copy of the folder of a running cluster."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.errors import LocalError
from coordinator.local import down, option_checks, stack
from kube.stop import HURRY
from tests.support.waiting import patient, until

pytestmark = pytest.mark.servers

SUPERVISOR = """
import fcntl, os, pathlib, signal, sys
data = pathlib.Path(sys.argv[1])
with (data / "lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(f"{os.getpid()} " + open("/proc/self/stat").read().rpartition(")")[2].split()[19])
    lock.flush()
    signals = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    (data / "holds").touch()
    (data / "sent").write_text(str(int(signal.sigwait(signals))))
"""


@pytest.mark.parametrize(
    ("options", "number"),
    [({}, signal.SIGTERM), ({"keep": True}, stack.LEAVE), ({"now": True}, HURRY)],
)
def test_down_sends_the_signal_of_its_options(tmp_path: Path, options: dict[str, bool], number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path)]) as supervisor:
        until((tmp_path / "holds").exists)
        down.down(tmp_path, **options)
        assert supervisor.wait(patient()) == 0
    assert (tmp_path / "sent").read_text() == str(int(number))


def test_a_copy_of_the_folder_of_a_running_cluster_is_rejected(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(data)]) as supervisor:
        until((data / "holds").exists)
        shutil.copytree(data, copy)
        with pytest.raises(LocalError, match=f"copy of the folder of a running cluster \\(process {supervisor.pid}\\)"):
            option_checks.copy(copy)
        supervisor.terminate()
        option_checks.copy(copy)
    option_checks.copy(tmp_path)
