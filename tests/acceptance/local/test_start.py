"""Failed, interrupted and concurrent starts of `torchq local up`: messages are correct and no process is left."""

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.acceptance.stack import Stack, clean_environment, torchq_command, until
from tests.support.waiting import patient

Make = Callable[..., Stack]


def processes_of(stack: Stack) -> set[str]:
    """Return the command lines of all processes that name the data folder of the stack."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(stack.data) in line and int(path.parent.name) != os.getpid():
            found.add(line)
    return found


def start(stack: Stack, *more: str) -> "subprocess.Popen[str]":
    """Start `torchq local up` as a process of its own, so that signals reach it as from a terminal."""
    command = torchq_command("local", "up", "--data", str(stack.data), *stack.options, *more)
    return subprocess.Popen(
        command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=stack.folder
    )


@contextlib.contextmanager
def held_node(stack: Stack) -> Iterator[None]:
    """Stop the node process during the block, so that the start of the cluster cannot continue."""
    pid = until(lambda: node_of(stack))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def node_of(stack: Stack) -> int:
    """Return the process id of the node, or 0 if it has not started."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"embedded.node.node" in words and str(stack.data).encode() in words:
                return int(path.parent.name)
    return 0


def test_local_up_after_a_crash_returns_when_the_cluster_is_ready(make_stack: Make) -> None:
    stack = make_stack()
    assert stack.up().code == 0
    before = stack.pids()
    stack.kill("supervisor")
    said = stack.up()
    assert said.code == 0, said
    assert said.out.startswith("the cluster is up; ")
    after = stack.pids()
    assert after.keys() == before.keys()
    assert after["supervisor"] != before["supervisor"]
    assert stack.torchq("queue", "create", "at-once")


def test_local_up_names_a_process_that_does_not_start_and_its_log(make_stack: Make) -> None:
    stack = make_stack()
    stack.data.mkdir(mode=0o700)
    with (stack.data / "node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = stack.up()
    assert said.code == 1
    assert "the cluster did not start: process node: it ended with code 1" in said.err
    assert str(stack.layout.logs("node")) in said.err
    assert said.err.count("node: another node runs on") == 1
    assert stack.local("status").code == 1
    until(lambda: processes_of(stack), lambda found: not found)
    assert stack.up().code == 0, "the failed start is in the way"


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize(
    ("options", "number", "words"),
    [
        ((), signal.SIGINT, "interrupted: the cluster was not started"),
        ((), signal.SIGTERM, "interrupted: the cluster was not started"),
        ((), signal.SIGHUP, "interrupted: the cluster was not started"),
        (("--foreground",), signal.SIGINT, "the cluster was stopped while it started"),
    ],
)
def test_an_interrupted_local_up_stops_all_that_it_started(
    make_stack: Make, options: tuple[str, ...], number: signal.Signals, words: str
) -> None:
    stack = make_stack()
    process = start(stack, *options)
    with held_node(stack):
        assert "the cluster is starting" in stack.local("status").out
        process.send_signal(number)
    out, err = process.communicate(timeout=patient())
    assert (process.returncode, out) == (1, "")
    assert words in err
    assert "Traceback" not in err
    assert not processes_of(stack)


def test_local_down_during_the_start_ends_the_start(make_stack: Make) -> None:
    stack = make_stack()
    process = start(stack)
    with held_node(stack):
        os.kill(stack.supervisor(), signal.SIGTERM)
    assert stack.down().code == 0
    out, err = process.communicate(timeout=patient())
    assert (process.returncode, out) == (1, "")
    assert "the cluster was stopped while it started" in err
    assert not processes_of(stack)


def test_two_concurrent_local_ups_start_one_cluster(make_stack: Make) -> None:
    stack = make_stack()
    both = [start(stack), start(stack)]
    said = [each.communicate(timeout=patient(120)) for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sorted(out.partition(";")[0] for out, _ in said) == ["the cluster is up", "the cluster is up already"]
    assert len([line for line in processes_of(stack) if "embedded.apiserver.api_server" in line]) == 1


@pytest.mark.parametrize("command", ["up", "down"])
def test_local_up_and_down_succeed_if_their_output_has_no_reader(make_stack: Make, command: str) -> None:
    stack = make_stack()
    if command == "down":
        assert stack.up().code == 0
    words = torchq_command("local", command, "--data", str(stack.data), *(stack.options if command == "up" else ()))
    with unread(stack, words) as process:
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(patient())) == ("", 0)
    assert (stack.local("status").code == 0) == (command == "up")


@pytest.mark.usefixtures("own_signals")
def test_local_up_foreground_keeps_running_if_its_output_has_no_reader(make_stack: Make) -> None:
    stack = make_stack()
    with unread(stack, torchq_command("local", "up", "--foreground", "--data", str(stack.data), *stack.options)) as up:
        until(lambda: stack.local("status").code == 0)
        up.send_signal(signal.SIGINT)
        assert up.wait(patient()) == 0
    assert not processes_of(stack)


def unread(stack: Stack, command: list[str]) -> "subprocess.Popen[str]":
    """Start a command whose standard output has no reader."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = clean_environment()
    try:
        return subprocess.Popen(
            command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=stack.folder
        )
    finally:
        os.close(writing)


@pytest.mark.usefixtures("own_signals")
def test_local_up_foreground_reports_the_start_and_ends_on_sigint(make_stack: Make) -> None:
    stack = make_stack()
    process = start(stack, "--foreground")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("the cluster is up; ")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=patient())
    assert process.returncode == 0
    assert "torchq's commands go to" in out or "no other cluster is current" in out
    assert not processes_of(stack)
