"""How a container ends when it is asked to end: by which signal, with which first process, and with which children."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from embedded.layout import Layout
from embedded.node.runs import container_processes
from embedded.node.runs.container_runs import ContainerRuns, Ending, Order, Run, RunKey
from tests.support.embedded.stage import Stage
from tests.support.waiting import until

pytestmark = pytest.mark.servers

KEY = RunKey(f"uid-{os.getpid()}", "c", 0)
TRAINING = """
import os, signal, sys, time
children = []
for _ in range(int(os.environ["CHILDREN"])):
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)
    children.append(child)
def save(*_):
    time.sleep(0.1)  # a child that got SIGTERM, too, has died by now
    print("saved with", sum(os.waitpid(child, os.WNOHANG)[0] == 0 for child in children), flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
os.write(1, b"ready\\n")  # no print: the signal may come before it has returned
time.sleep(600)
"""
"""A training program that saves on SIGTERM. The program cannot save if it has lost the workers of its data loader."""
LAUNCHER = 'import os, subprocess, sys; sys.exit(subprocess.call(["python", "-c", os.environ["TRAINING"]]))'
AGENT = (
    "import os, signal, subprocess, sys\n"
    'child = subprocess.Popen(["python", "-c", os.environ["TRAINING"]])\n'
    "signal.signal(signal.SIGTERM, lambda *_: child.terminate())\n"
    "sys.exit(3 + child.wait())\n"
)
TRAIN = 'python -c "$TRAINING"'
FIRST = {
    "the training": ("python", "-c", TRAINING),
    "a shell that became the training": ("sh", "-c", f"exec {TRAIN}"),
    "a shell": ("sh", "-c", f"{TRAIN}; exit $?"),
    "a shell in a shell": ("sh", "-c", "sh -c '" + TRAIN + "; exit $?'; exit $?"),
    "a shell with a session of its own below": (
        "sh",
        "-c",
        f"setsid env -u {container_processes.MARK} {TRAIN}; exit $?",
    ),
    "a launcher without a handler": ("python", "-c", LAUNCHER),
    "an agent that passes the signal on": ("python", "-c", AGENT),
    "a shell that exits on the signal": ("sh", "-c", f"trap 'exit 4' TERM; {TRAIN} & wait"),
}
Send = Callable[[Run], None]


def ask(run: Run) -> None:
    """Ask the container to end, as the node does when a pod is deleted, is restarted in place, or ends with its
    node.
    """
    assert run.process is not None
    container_processes.ask_to_end(run.process, run.shim)


def end_first(run: Run) -> None:
    """Send SIGTERM to the first process, as the user of the process may."""
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGTERM)


def end_session(run: Run) -> None:
    """Send SIGTERM to the shim and every process, as at the end of a session, before any process can handle the
    signal.
    """
    assert run.shim is not None
    pids = [run.shim.pid, *container_processes.members(KEY.mark, run.process, [run.shim])]
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
        for pid in pids:
            with suppress(ProcessLookupError):  # SIGTERM may end the process before SIGSTOP has stopped it
                os.kill(pid, number)


def kill(run: Run) -> None:
    """Kill the container, as the node does at the end of the grace period."""
    assert run.shim is not None
    container_processes.kill_marked(KEY.mark, run.process, [run.shim])


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ContainerRuns]:
    runs = ContainerRuns(Layout(tmp_path))
    yield runs
    while runs.kill_all(KEY.uid):
        pass
    runs.close()


def started(runs: ContainerRuns, first: tuple[str, ...], children: int) -> Run:
    """Start a run and wait until its training program is ready."""
    environment = {"PATH": os.environ["PATH"], "TRAINING": TRAINING, "CHILDREN": str(children)}
    assert runs.start(KEY, Order(first, environment, "/"))
    until(lambda: "ready" in runs.tail(KEY, 100))
    run = runs.read(KEY)
    assert run is not None
    return run


def ended(runs: ContainerRuns) -> Ending:
    run: Run = until(lambda: runs.read(KEY), lambda run: run is not None and run.ending is not None)
    assert run.ending is not None
    return run.ending


@pytest.mark.parametrize(
    ("send", "first", "children", "code", "said"),
    [
        (ask, "the training", 0, 0, "saved with 0"),
        (ask, "the training", 2, 0, "saved with 2"),
        (ask, "a shell that became the training", 2, 0, "saved with 2"),
        (ask, "a shell", 2, 143, "saved with 2"),
        (ask, "a shell in a shell", 2, 143, "saved with 2"),
        (ask, "a shell with a session of its own below", 2, 143, "saved with 2"),
        (ask, "a launcher without a handler", 2, 143, "saved with 2"),
        (ask, "an agent that passes the signal on", 2, 3, "saved with 2"),
        (ask, "a shell that exits on the signal", 2, 4, ""),
        (end_first, "the training", 2, 0, "saved with 2"),
        (end_first, "a shell", 0, 143, ""),
        (end_session, "a shell", 0, 143, "saved with 0"),
        (end_session, "a launcher without a handler", 0, 143, "saved with 0"),
        (kill, "the training", 2, 137, ""),
        (kill, "a shell with a session of its own below", 2, 137, ""),
    ],
)
def test_a_training_saves_if_it_is_asked_to_end_with_its_container(
    runs: ContainerRuns, send: Send, first: str, children: int, code: int, said: str
) -> None:
    run = started(runs, FIRST[first], children)
    send(run)
    ending = ended(runs)
    assert runs.tail(KEY, 1000).split("ready\n")[1].strip() == said
    assert (ending.exit_code, bool(ending.signalled_at)) == (code, send is end_session)
    assert not container_processes.members(KEY.mark)


def test_what_outlives_its_session_is_killed_in_the_end(runs: ContainerRuns) -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 600; done"
    run = started(runs, ("sh", "-c", f'sh -c "{stubborn}"; exit $?'), 0)
    end_session(run)
    assert run.process is not None
    assert run.shim is not None
    until(run.process.alive, lambda alive: not alive)
    assert container_processes.members(KEY.mark)
    os.kill(run.shim.pid, signal.SIGALRM)  # the same signal comes after 90 s
    assert ended(runs).exit_code == 143
    assert not container_processes.members(KEY.mark)


def test_a_run_of_an_earlier_version_gets_sigterm_from_the_node_itself(runs: ContainerRuns) -> None:
    ask(replace(started(runs, FIRST["the training"], 2), shim=None))
    assert ended(runs).exit_code == 0
    assert "saved with 2" in runs.tail(KEY, 100)


@pytest.mark.parametrize("at_once", [False, True], ids=["after its grace", "while its pod is gone"])
def test_what_a_dead_first_process_left_is_killed(stage: Stage, at_once: bool) -> None:
    mark = container_processes.MARK
    script = f"setsid env -u {mark} sh -c 'trap \"\" TERM; echo $$$$; while :; do sleep 600; done'; exit $?"
    name = stage.run("sh", "-c", script)
    pid = int(until(lambda: stage.log(name) if stage.phase(name, "Running") else ""))
    stage.delete(name, grace=600 if at_once else 1)
    if at_once:
        until(lambda: Path(f"/proc/{pid}/status").read_text().split("PPid:")[1].split()[0], shim_of(stage, name).__eq__)
        stage.delete(name, grace=0)
    stage.wait_gone(name)
    until(lambda: os.path.exists(f"/proc/{pid}"), lambda alive: not alive)


def shim_of(stage: Stage, name: str) -> str:
    """Return the pid of the shim of the pod's container."""
    run = ContainerRuns(stage.layout).read(RunKey(stage.get(name)["metadata"]["uid"], "c0", 0))
    assert run is not None
    assert run.shim is not None
    return str(run.shim.pid)
