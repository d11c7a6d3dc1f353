"""The causes in torchrun's last output: messages of PyTorch 2.13, as a node keeps them (2,048 bytes)."""

from pathlib import Path

import pytest

from reconcilers.views import torchrun

MESSAGES = Path(__file__).parent / "torchrun_messages"
RECORDED = """{"message": {"message": "ValueError: no data", "errorCode": "%s", "extraInfo": {"py_callstack": "Trace"""


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("exit3", 3),
        ("raises", 1),
        ("recorded", 1),
        ("missing", 2),
        ("sigkill", 137),
        ("segv", 139),
        ("two", 137),  # torchrun stopped the other process because of this one
        ("sigterm", 143),
        ("sigint", 130),
        ("mounted", 1),
    ],
)
def test_exit_cause_of_recorded_message(name: str, cause: int) -> None:
    said = (MESSAGES / f"{name}.txt").read_text()
    assert torchrun.exit_cause(said) == cause
    assert torchrun.exit_cause(said[-1200:]) in (cause, None)
    assert not torchrun.blames_peer(said)


def test_error_file_gives_exit_cause_and_output() -> None:
    written = (MESSAGES / "error_file.txt").read_text()
    assert torchrun.exit_cause(written) == 1
    assert [torchrun.root_cause_output(each) for each in (written, written[:50])] == ["ValueError: no data"] * 2
    assert torchrun.root_cause_output('{"message": "a \\"b\\"\\nc"}') == 'a "b"\nc'
    assert torchrun.root_cause_output("ValueError: {no data}") == "ValueError: {no data}"


def test_output_ends_with_exception_when_error_file_was_unwritable() -> None:
    assert (
        torchrun.root_cause_output((MESSAGES / "mounted.txt").read_text())
        .rstrip("= \n")
        .endswith("\n  ValueError: no data")
    )


def test_error_file_without_its_beginning_is_read() -> None:
    written = (MESSAGES / "error_file.txt").read_text()
    for cut in (1, 60, 300):
        assert torchrun.root_cause_output(written[cut:]).splitlines()[-1] == "ValueError: no data"
        assert torchrun.exit_cause(written[cut:]) == 1


def test_error_file_without_its_end_gives_exit_cause() -> None:
    assert torchrun.exit_cause(RECORDED % "-9") == 137
    assert torchrun.exit_cause(RECORDED % "77") == 77


@pytest.mark.parametrize("said", ["", "ValueError: no data", "exitcode : 3", "Root Cause: exitcode : 999"])
def test_exit_cause_of_other_text_is_none(said: str) -> None:
    assert torchrun.exit_cause(said) is None


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:11863",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_lost_connection_blames_peer(said: str) -> None:
    assert torchrun.blames_peer(said)


@pytest.mark.parametrize("said", ["", "ValueError: no data", "CUDA out of memory", "FileNotFoundError: data.pt"])
def test_other_errors_do_not_blame_peer(said: str) -> None:
    assert not torchrun.blames_peer(said)


@pytest.mark.parametrize(("code", "shell"), [(-9, 137), (-11, 139), (3, 3), (0, None), (256, None), (-65, None)])
def test_shell_code_of_python_exit_code(code: int, shell: int | None) -> None:
    assert torchrun.shell_code(code) == shell


@pytest.mark.parametrize(("code", "name"), [(137, "SIGKILL"), (1, ""), (128, ""), (255, "")])
def test_signal_name_of_exit_code(code: int, name: str) -> None:
    assert torchrun.signal_name(code) == name


@pytest.mark.parametrize(
    "said", ["Root Cause\n exitcode : {}", '"errorCode": {}', "SignalException: Process 1 got signal: {}"]
)
@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 60, "9" * 10, "٣"])
def test_exit_cause_of_huge_number_is_none(said: str, number: str) -> None:
    assert torchrun.exit_cause(said.format(number)) is None


def test_error_of_the_rendezvous_is_named() -> None:
    def error(name: str) -> str:
        return torchrun.rendezvous_error(torchrun.last_output((MESSAGES / f"{name}.txt").read_text()).text)

    assert (error("rendezvous_closed"), error("rendezvous_connection")) == ("Closed", "Connection")
    assert error("raises") == ""
    assert torchrun.rendezvous_error("a process said RendezvousClosedError") == ""
