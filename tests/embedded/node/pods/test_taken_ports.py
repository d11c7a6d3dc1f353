"""The port that a failed program could not use, found in its output, and the owner of this port."""

import socket

import pytest

from crds import labels
from embedded.node.pods import failed_output
from tests.support.embedded.stage import Stage


@pytest.mark.parametrize(
    ("output", "port"),
    [
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            29500,
        ),
        ("[W socket.cpp:1] bind to [::]:29501 failed (errno: 98 - Address already in use).", 29501),
        ("    s.bind(('127.0.0.1', 6006))\nOSError: [Errno 98] Address already in use", 6006),
        ("Starting on port 8080\nTraceback\n  File x\nOSError: [Errno 98] Address already in use", 8080),
        ("listen tcp 127.0.0.1:6379: bind: address already in use", 6379),
        ("port: 1, EADDRINUSE\nretry\nport: 2, EADDRINUSE", 2),
        ("OSError: [Errno 98] Address already in use", 0),
        ("12:30:01 Address already in use", 0),
        ("port: 29500 is fine", 0),
        ("port: 99999, EADDRINUSE", 0),
    ],
)
def test_the_port_of_the_last_complaint_is_found(output: str, port: int) -> None:
    assert failed_output.named_port(output) == port


def test_a_pod_that_fails_because_its_port_is_taken_names_the_holder(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        script = f"import socket; socket.create_server(('127.0.0.1', {port}))"
        name = stage.run("python", "-c", script, metadata={"labels": {labels.JOB_NAME: "digits"}})
        conditions = stage.phase(name, "Failed")["conditions"]
    (told,) = [each["message"] for each in conditions if each["type"] == labels.PORT_SHARED]
    assert told == f"port {port} is taken by a program of this machine that is no pod"
