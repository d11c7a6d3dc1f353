"""The errors of a part that does not start, and how the waiting command receives these errors."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.errors import LocalError
from coordinator.local import background_start, stack_start
from coordinator.local.background_start import Channel, ProgressPrinter
from coordinator.local.stack_start import StackStart, StartInterrupted
from coordinator.local.stack_state import AlreadyRuns, Files
from coordinator.local.supervisor import Command, Supervisor


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    made = Supervisor(drain_seconds=1.0)
    yield made
    made.stop()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.layout.logs("any").parent.mkdir()
    return made


def part(files: Files, name: str, code: str) -> Command:
    return Command(name=name, arguments=[sys.executable, "-c", code], output=files.layout.logs(name))


@pytest.mark.servers
def test_a_crashing_part_is_named_with_the_output_of_this_start(files: Files, supervisor: Supervisor) -> None:
    files.layout.logs("node").write_text("what it said last time\n")
    begun: list[str] = []
    start = StackStart(files, supervisor, lambda: False, begun.append)
    supervisor.start(part(files, "node", "print('no such device', flush=True); raise SystemExit(3)"))
    with pytest.raises(LocalError) as failed:
        start.wait("the node", "node", lambda: False)
    assert str(failed.value) == (
        "the cluster did not start: process node: it ended with code 3, 4 times in a row; "
        f"the end of {files.layout.logs('node')}:\n  no such device"
    )
    assert begun == ["the node"]


def test_a_part_that_does_not_answer_in_time_is_named(files: Files, supervisor: Supervisor) -> None:
    start = StackStart(files, supervisor, lambda: False)
    with pytest.raises(LocalError, match=r"the node: it did not answer within 0 s; see .*node\.log"):
        start.wait("the node", "node", lambda: False, seconds=0.0)


def test_a_stop_signal_ends_the_start(files: Files, supervisor: Supervisor) -> None:
    with pytest.raises(StartInterrupted):
        StackStart(files, supervisor, lambda: True).wait("the node", "node", lambda: False)


def test_last_lines_returns_the_end_of_a_log_without_repetitions() -> None:
    output = b"".join(b"line %d\n" % number for number in range(100)) + b"again\n" * 50 + b"\xff\n"
    assert stack_start.last_lines(output) == [f"line {number}" for number in range(94, 100)] + ["again", "\ufffd"]


def follow(*steps: object) -> bool:
    """Return whether a command that reads these messages of a supervisor reports a successful start. The supervisor
    then ends.
    """
    reading, writing = os.pipe()
    channel = Channel(writing)
    for step in steps:
        if isinstance(step, Exception):
            channel.report_failure(step)
        elif step is True:
            channel.ready()
        else:
            channel.part(str(step))
    os.close(writing)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended, open(reading, "rb", buffering=0) as stream:
        return background_start._follow(background_start._events(stream), ended, ProgressPrinter(is_visible=True))


@pytest.mark.servers
def test_a_command_follows_a_start_to_its_success_or_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert follow("the API server", "the node", True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ... ")[0] for line in lines] == ["  the API server", "  the node"]
    with pytest.raises(LocalError, match="no such device"):
        follow("the node", LocalError("no such device"))
    assert not follow(AlreadyRuns("somebody was first"))
    with pytest.raises(EOFError):
        follow("the node")


def test_a_channel_without_a_reader_raises_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    channel = Channel(writing)
    channel.part("the node")
    channel.ready()
    os.close(writing)
