"""Pods of two jobs that are connected with each other: which owners are told, and when the node looks for
connections.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from crds.api_resources import EVENTS
from crds.keys import JobKey
from embedded.node.resources import loopback, port_watch
from embedded.node.resources.port_watch import NetworkedPod, PortWatch
from embedded.node.runs.container_processes import Process
from kube import errors
from tests.support.waiting import until

pytestmark = pytest.mark.servers

NOW = 1000.0
A, B = JobKey("team", "a", "uid-a"), JobKey("team", "b", "uid-b")
SERVE = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listening = socket.create_server((sys.argv[1], 0), family=family, dualstack_ipv6=sys.argv[1] == "::")
print(listening.getsockname()[1], flush=True)
connection = listening.accept()
sys.stdin.read()
"""
JOIN = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("joined", flush=True)
sys.stdin.read()
"""


class Events:
    """A cluster that keeps the Events that are created. The cluster refuses Events if the test sets it so."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.refuses = False

    def create(self, resource: Any, body: dict[str, Any], namespace: str) -> None:
        assert resource == EVENTS
        if self.refuses:
            raise errors.Unreachable("no answer")
        self.created.append({**body, "namespace": namespace})


def start(stack: ExitStack, *arguments: str) -> tuple[Process, str]:
    """Start a program in its own session. Return the program with the first line that it prints."""
    program = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    )
    stack.callback(program.kill)
    assert program.stdout is not None
    line = program.stdout.readline().decode().strip()
    with open(f"/proc/{program.pid}/stat", "rb") as stat:
        ticks = int(stat.read().rpartition(b")")[2].split()[19])
    return Process(program.pid, ticks), line


@pytest.fixture(params=["127.0.0.1", "::1", "::"])
def world(request: pytest.FixtureRequest) -> Iterator[tuple[Process, Process, int]]:
    """Yield a process that listens, a process that is connected to the listener, and the port."""
    with ExitStack() as stack:
        server, port = start(stack, SERVE, request.param)
        client, _ = start(stack, JOIN, "127.0.0.1" if request.param == "::" else request.param, port)
        yield server, client, int(port)


def watching(*pods: tuple[str, JobKey, Process], age: float = 0.0) -> tuple[PortWatch, Events]:
    cluster = Events()
    watch = PortWatch(cluster, clock=lambda: NOW)  # type: ignore[arg-type]
    for name, job, process in pods:
        watch.watch(name, NetworkedPod(job, name, {f"{os.getpid()}/{name}/": process}, NOW - age))
    return watch, cluster


def test_both_jobs_are_told_once_of_a_connection_between_their_pods(world: tuple[Process, Process, int]) -> None:
    server, client, port = world
    watch, cluster = watching(("a-0", A, server), ("b-1", B, client))
    until(lambda: (watch.look(), watch.note("b-1"))[1])  # the other end accepts the connection a moment later
    watch.look()
    assert watch.note("b-1").startswith(f"pod b-1 connected to port {port} of pod a-0 of job team/a: ")
    assert watch.note("a-0").startswith(f"pod b-1 of job team/b connected to port {port} of pod a-0: ")
    assert [(each["involvedObject"]["name"], each["message"]) for each in cluster.created] == [
        ("b", watch.note("b-1")),
        ("a", watch.note("a-0")),
    ]
    assert watch.holder(port) == "job team/a (pod a-0)"
    watch.forget("b-1")
    assert watch.note("b-1") == ""


@pytest.mark.parametrize(
    ("jobs", "age"), [((A, A), 0.0), ((A, B), port_watch.YOUNG_SECONDS)], ids=["one job", "its world has formed"]
)
def test_no_other_connection_is_noted(jobs: tuple[JobKey, JobKey], age: float) -> None:
    with ExitStack() as stack:
        server, port = start(stack, SERVE, "127.0.0.1")
        client, _ = start(stack, JOIN, "127.0.0.1", port)
        watch, cluster = watching(("one", jobs[0], server), ("two", jobs[1], client), age=age)
        watch.look()
        assert (watch.note("one"), watch.note("two"), cluster.created) == ("", "", [])


def test_a_connection_to_a_program_that_is_no_pod_is_not_noted() -> None:
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        client, _ = start(stack, JOIN, "127.0.0.1", str(port))
        other, _ = start(stack, SERVE, "127.0.0.1")
        watch, cluster = watching(("a-0", A, client), ("b-0", B, other))
        watch.look()
        assert cluster.created == []
        assert watch.holder(port) == "a program of this machine that is no pod"
    assert watch.holder(port) == ""


def test_an_event_that_cannot_be_written_leaves_the_note(world: tuple[Process, Process, int]) -> None:
    watch, cluster = watching(("a-0", A, world[0]), ("b-1", B, world[1]))
    cluster.refuses = True
    until(lambda: (watch.look(), watch.note("a-0"))[1])
    assert watch.note("b-1")


def test_the_thread_looks_as_soon_as_pods_run_and_ends(world: tuple[Process, Process, int]) -> None:
    watch, _ = watching(("a-0", A, world[0]), ("b-1", B, world[1]))
    watch.start()
    until(lambda: watch.note("b-1"))
    watch.stop()


def test_sockets_of_a_process_that_is_gone_are_none() -> None:
    assert loopback.sockets([2**22 + 1]) == set()
