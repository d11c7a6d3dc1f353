"""The wait for a stop signal."""

import signal
import subprocess
import sys

import pytest

from kube.stop import Stop

pytestmark = pytest.mark.servers

ROUNDS = 200
WAITS = """
import signal, sys, threading, time
from kube.stop import Stop

def work():
    while True:
        time.sleep(0.0005)

for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(int(sys.argv[1])):
    stop = Stop()
    stop.listen()
    print("waiting", flush=True)
    stop.pause(3600) if sys.argv[2] == "pause" else stop.wait()
    assert stop.requested
"""
"""A process with busy threads. The process waits for one stop signal after another."""


@pytest.mark.parametrize("way", ["wait", "pause"])
def test_every_stop_signal_ends_a_wait(way: str) -> None:
    command = [sys.executable, "-c", WAITS, str(ROUNDS), way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                assert line == "waiting\n"
                process.send_signal(signal.SIGUSR1)
                process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_pause_ends_by_itself() -> None:
    stop = Stop()
    for seconds in (0.01, -1.0):
        stop.pause(seconds)
    assert not stop()
