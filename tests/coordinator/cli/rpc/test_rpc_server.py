"""The server of `torchq rpc` and its two pipes: the messages that it writes for each message that it reads."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest

from coordinator.cli.rpc import command_output
from coordinator.cli.rpc.call_context import ClusterAccesses, OpenCall
from coordinator.cli.rpc.rpc_server import Server
from coordinator.cli.session import Session
from kube import errors
from torchq._protocol import WINDOW, encode, hello
from torchq._version import VERSION

STREAM, CALL, CHANGE = "job.logs", "status", "job.suspend"
JOB = {"job": "default/train/1"}


class Client:
    """The other end of both pipes of a server, which runs on a thread."""

    def __init__(self, **methods: Callable[..., Any]) -> None:
        named = {{"stream": STREAM, "call": CALL, "change": CHANGE}[name]: each for name, each in methods.items()}
        requests, self._requests = os.pipe()
        answers, self.answers = os.pipe()
        self._reading = os.fdopen(answers, "rb")
        session = Session({"kubeconfig": "/nonexistent"}, None, environ={})
        self._input = os.fdopen(requests, "rb")
        server = Server(ClusterAccesses(session), self._input, self.answers, named)
        self.thread = threading.Thread(target=server.run)
        self.thread.start()

    def send(self, text: bytes) -> None:
        os.write(self._requests, text)

    def call(self, number: int, method: str, **params: Any) -> None:
        self.send(encode({"id": number, "method": method, "params": params}))

    def tell(self, method: str, **params: Any) -> None:
        self.send(encode({"method": method, "params": params}))

    def read(self) -> dict[str, Any]:
        line = self._reading.readline()
        assert line.endswith(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def end(self) -> None:
        """Close the input, and wait until the server has ended."""
        if self.thread.is_alive():
            os.close(self._requests)
            self.thread.join(60)
            assert not self.thread.is_alive()

    def close(self) -> None:
        self.end()
        os.close(self.answers)
        self._reading.close()
        self._input.close()


Start = Callable[..., Client]


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield a function that starts a server with the methods that a test defines."""
    started: list[Client] = []

    def begin(**methods: Callable[..., Any]) -> Client:
        client = Client(**methods)
        started.append(client)
        assert (first := client.read()).get("method") == "hello", first
        return client

    yield begin
    for client in started:
        client.close()


def answer(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_a_call_is_answered_with_its_id(start: Start) -> None:
    client = start(call=answer({"jobs": 1}))
    client.send(hello())
    client.call(7, CALL)
    assert client.read() == {"jsonrpc": "2.0", "id": 7, "result": {"jobs": 1}}


def test_a_slow_reader_of_one_stream_stalls_that_stream_only(start: Start) -> None:
    made: list[int] = []

    def numbers(*_: Any) -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            yield number

    client = start(stream=numbers, call=answer("quick"))
    client.call(1, STREAM, **JOB)
    items = [client.read() for _ in range(WINDOW)]
    assert [each["params"]["value"] for each in items] == list(range(WINDOW))
    client.call(2, CALL)
    assert client.read()["result"] == "quick"
    assert len(made) <= WINDOW + 1, "one item waits for its turn"
    client.tell("more", id=1, count=1)
    assert client.read()["params"] == {"id": 1, "value": WINDOW}


def test_a_cancelled_stream_ends_what_it_waits_for(start: Start) -> None:
    ended = threading.Event()

    def waiting(_access: Any, _params: Any, call: Any) -> Iterator[int]:
        closed = threading.Event()
        call.when_cancelled(closed.set)
        try:
            yield 1
            closed.wait(60)
        finally:
            ended.set()

    client = start(stream=waiting)
    client.call(1, STREAM, **JOB)
    assert client.read()["params"]["value"] == 1
    client.tell("cancel", id=1)
    assert ended.wait(60)
    assert client.read()["id"] == 1


def test_a_stream_that_waits_for_its_reader_is_cancelled_too(start: Start) -> None:
    ended = threading.Event()

    def endless(*_: Any) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            ended.set()

    client = start(stream=endless)
    client.call(1, STREAM, **JOB)
    for _ in range(WINDOW):
        client.read()
    client.tell("cancel", id=1)
    assert ended.wait(60)


def test_lines_of_many_threads_are_whole(start: Start) -> None:
    client = start(call=answer("x" * 100_000))
    for number in range(100):
        client.call(number, CALL)
    answers = [client.read() for _ in range(100)]
    assert sorted(each["id"] for each in answers) == list(range(100))
    assert {len(each["result"]) for each in answers} == {100_000}


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (errors.Forbidden("no get for torchjobs"), "Forbidden", "no get for torchjobs"),
        (errors.Unauthorized("the token has expired"), "Unauthorized", "the token has expired"),
        (click.UsageError("no such option"), "Invalid", "no such option"),
        (
            errors.Invalid('TorchJob "a" is invalid: x', (errors.FieldCause("spec.x", "must be 1"),)),
            "Invalid",
            'TorchJob "a" is invalid:\n  spec.x: must be 1',
        ),
        (RuntimeError("a bug"), "Bug", "torchq rpc failed with RuntimeError: a bug; its standard error has more"),
    ],
)
def test_an_error_has_its_kind_and_the_message_of_the_command(
    start: Start, error: Exception, kind: str, message: str
) -> None:
    client = start(call=failing(error))
    client.call(1, CALL)
    found = client.read()["error"]
    assert (found["data"], found["message"]) == ({"kind": kind}, message)


def test_a_wrong_parameter_is_refused_without_a_cluster(start: Start) -> None:
    client = start(change=answer(None))
    client.call(1, CHANGE, job=3)
    assert client.read()["error"]["message"] == "job: must be text, not 3"


def test_an_unknown_call_names_the_version(start: Start) -> None:
    client = start()
    client.call(1, "job.fly")
    assert client.read()["error"] == {
        "code": -32601,
        "message": f"torchq {VERSION} has no call job.fly: install a newer torchq",
        "data": {"kind": "VersionMismatch"},
    }


def test_a_client_of_another_protocol_gets_both_versions(start: Start) -> None:
    client = start(call=answer(1))
    client.tell("hello", version="9.0", protocol=7)
    client.call(1, CALL)
    error = client.read()["error"]
    assert error["data"]["kind"] == "VersionMismatch"
    assert f"package torchq 9.0 (protocol 7) and the program torchq {VERSION} (protocol 1)" in error["message"]


@pytest.mark.parametrize("text", [b"\n", b"nonsense\n", b"[]\n", b'{"id": 1}\n', b'{"method": "x", "params": 3}\n'])
def test_what_is_no_request_is_refused_and_the_next_one_answered(start: Start, text: bytes) -> None:
    client = start(call=answer(1))
    client.send(text)
    assert client.read()["error"]["code"] == -32600
    client.call(2, CALL)
    assert client.read()["result"] == 1


def test_the_end_of_the_input_ends_streams_and_completes_changes(start: Start) -> None:
    begun, done, go_on = threading.Event(), threading.Event(), threading.Event()

    def change(*_: Any) -> None:
        begun.set()
        go_on.wait(60)
        done.set()

    def waiting(_access: Any, _params: Any, call: Any) -> Iterator[int]:
        call.stop.wait(60)
        go_on.set()
        yield 1

    client = start(change=change, stream=waiting)
    client.call(1, STREAM, **JOB)
    client.call(2, CHANGE, **JOB)
    assert begun.wait(60)
    client.end()
    assert done.is_set()


# Commands as calls.


def test_what_a_command_prints_belongs_to_its_thread(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session({}, None, environ={})
    with command_output.thread_streams():
        with ThreadPoolExecutor(8) as pool:
            said = [each.out for each in pool.map(lambda _: command_output.run(session, OpenCall(), "crds"), range(16))]
        print("a stray line")
    assert {text.count("kind: CustomResourceDefinition") for text in said} == {5}
    assert len(set(said)) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "a stray line\n")


@pytest.mark.servers
def test_the_program_itself_writes_nothing_but_the_protocol_to_its_output(tmp_path: Path) -> None:
    """Whatever the calls print: the first line is the greeting, and each line is a message."""
    requests = b"".join(
        [hello(), *(encode({"id": each, "method": "command", "params": {"arguments": ["crds"]}}) for each in range(5))]
    )
    process = subprocess.run(
        [sys.executable, "-m", "coordinator.cli.main", "--kubeconfig", str(tmp_path / "none"), "rpc"],
        input=requests,
        capture_output=True,
        check=False,
    )
    messages = [json.loads(line) for line in process.stdout.splitlines()]
    assert process.returncode == 0, process.stderr
    assert messages[0]["method"] == "hello"
    assert sorted(each["id"] for each in messages[1:]) == list(range(5))
    assert all("kind: CustomResourceDefinition" in each["result"] for each in messages[1:])
