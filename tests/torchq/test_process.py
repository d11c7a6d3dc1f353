"""The process behind both clients: its start, its end, and the errors of calls when it ends."""

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import torchq
import torchq.aio
from tests.support.acceptance.stack import alive
from tests.support.client.callers import Caller
from tests.support.client.programs import install_text
from tests.support.waiting import until
from tests.torchq.conftest import Plan
from torchq._training.importing import Importing

pytestmark = pytest.mark.servers

STATUS = {"result": {"jobs": 1}}


def test_nothing_is_started_before_the_first_call(plan: Plan) -> None:
    program = plan({"status": STATUS})
    client = torchq.Client()
    assert program.pids == []
    assert client.status() == {"jobs": 1}
    assert len(program.pids) == 1
    client.close()


def test_all_threads_share_one_process(plan: Plan) -> None:
    program = plan({"status": STATUS})
    with torchq.Client() as client, ThreadPoolExecutor(50) as pool:
        assert list(pool.map(lambda _: client.status(), range(200))) == [{"jobs": 1}] * 200
    assert len(program.pids) == 1


def test_without_a_program_the_error_says_what_to_install(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(torchq.NoProgram, match="pip install torchq-coordinator"):
        caller.do(lambda client: client.status())


def test_the_program_beside_this_python_is_used_if_none_is_on_path(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan({"status": STATUS})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", "/nonexistent")
    with torchq.Client() as client:
        assert client.status() == {"jobs": 1}


def test_another_protocol_names_both_versions_and_what_to_install(caller: Caller, plan: Plan) -> None:
    plan(hello={"version": "7.2.0", "protocol": 9})
    with pytest.raises(torchq.VersionMismatch) as caught:
        caller.do(lambda client: client.status())
    message = str(caught.value)
    assert f"torchq {torchq.__version__} (protocol 1)" in message
    assert "7.2.0 (protocol 9)" in message
    assert "pip install torchq-client==7.2.0" in message
    assert f"pip install torchq-coordinator=={torchq.__version__}" in message


@pytest.mark.parametrize(
    ("hello", "words"),
    [("usage: torchq COMMAND", "does not answer as `torchq rpc` does"), (None, "the fake program has no hello")],
)
def test_another_program_of_that_name_is_named(caller: Caller, plan: Plan, hello: str | None, words: str) -> None:
    plan(hello=hello)
    with pytest.raises(torchq.NoProgram, match=words):
        caller.do(lambda client: client.status())


def test_a_program_that_cannot_be_started_is_named(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install_text(tmp_path, ""))
    (tmp_path / "torchq").write_bytes(b"\x00\x01 no program")
    with pytest.raises(torchq.NoProgram, match=r"cannot be started: Exec format error"):
        caller.do(lambda client: client.status())


def test_a_change_that_a_dying_program_got_is_not_repeated_and_the_next_call_starts_another(
    caller: Caller, plan: Plan
) -> None:
    program = plan({"job.suspend": "die", "status": STATUS, "job": {"result": "default/train/1"}})
    job = caller.do(lambda client: client.job("train"))
    with pytest.raises(torchq.Disconnected, match="SIGKILL in the middle of the call") as caught:
        caller.do(lambda _: job.suspend())
    assert "the fake program dies" in str(caught.value)
    assert caller.do(lambda client: client.status()) == {"jobs": 1}
    assert len(program.got("job.suspend")) == 1
    assert len(program.pids) == 2


def test_a_read_that_a_dying_program_got_is_repeated_once(caller: Caller, plan: Plan) -> None:
    program = plan({"status": ["die", STATUS]})
    assert caller.do(lambda client: client.status()) == {"jobs": 1}
    assert len(program.got("status")) == 2


def test_a_read_is_not_repeated_for_ever(caller: Caller, plan: Plan) -> None:
    program = plan({"status": "die"})
    with pytest.raises(torchq.Disconnected):
        caller.do(lambda client: client.status())
    assert len(program.got("status")) == 2


def test_a_stream_that_is_left_is_cancelled_at_the_other_end(caller: Caller, plan: Plan) -> None:
    program = plan({"job.logs": {"items": 3}, "job": {"result": "default/train/1"}})
    job = caller.do(lambda client: client.job("train"))
    lines = caller.items(lambda _: job.logs(follow=True))
    assert [str(next(lines)) for _ in range(3)] == ["[p] 0", "[p] 1", "[p] 2"]
    lines.close()
    number = program.got("job.logs")[0]["id"]
    assert until(lambda: program.got("cancel"))[0]["params"] == {"id": number}


def test_a_stream_is_allowed_more_items_as_they_are_used(caller: Caller, plan: Plan) -> None:
    program = plan({"job.logs": {"items": 1000}, "job": {"result": "default/train/1"}})
    job = caller.do(lambda client: client.job("train"))
    lines = caller.items(lambda _: job.logs())
    assert next(lines).text == "0"
    assert program.got("more") == [], "one item was used"
    assert [next(lines).text for _ in range(999)][-1] == "999"
    lines.close()


def test_other_variables_select_another_program_while_old_streams_go_on(
    caller: Caller, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = plan({"job.logs": {"items": 2}, "job": {"result": "default/train/1"}, "status": STATUS})
    job = caller.do(lambda client: client.job("train"))
    lines = caller.items(lambda _: job.logs())
    next(lines)
    monkeypatch.setenv("KUBECONFIG", "/another/cluster")
    caller.do(lambda client: client.status())
    assert len(program.pids) == 2
    assert next(lines).text == "1"
    lines.close()
    until(lambda: not alive(program.pids[0]))


def test_the_variables_of_the_callers_python_are_not_passed_on(
    caller: Caller, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = plan({"status": STATUS})
    monkeypatch.setenv("PYTHONPATH", "/a/project/with/kube")
    caller.do(lambda client: client.status())
    assert program.messages[0]["safe"] is None


def test_a_client_submits_nothing_while_a_job_imports_the_callers_module(caller: Caller, plan: Plan) -> None:
    program = plan({"status": STATUS})
    with Importing("train"):
        with pytest.raises(torchq.Refused, match="which submits a job again"):
            caller.do(lambda client: client.run(["python", "train.py"]))
        with pytest.raises(torchq.Refused, match="which submits a job again"):
            caller.do(lambda client: client.submit([]))
        caller.do(lambda client: client.status())
    assert not program.got("run")


def test_the_options_of_a_client_are_those_of_the_command(plan: Plan) -> None:
    program = plan({"status": STATUS})
    with torchq.Client(context="prod", namespace="team-a") as client:
        client.status()
    assert program.messages[0]["arguments"] == ["--context", "prod", "--namespace", "team-a", "rpc"]


@pytest.mark.usefixtures("own_signals")
def test_an_interrupted_call_is_cancelled_at_the_other_end(plan: Plan) -> None:
    program = plan({"wait": "hang"})

    def interrupt() -> None:
        until(lambda: program.got("wait"))
        os.kill(os.getpid(), signal.SIGINT)

    with torchq.Client() as client:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.wait(["default/train/1"])
        thread.join()
        assert until(lambda: program.got("cancel"))


def test_a_cancelled_task_cancels_its_call_at_the_other_end(plan: Plan) -> None:
    program = plan({"wait": "hang"})

    async def cancelled() -> None:
        async with torchq.aio.Client() as client:
            task = asyncio.create_task(client.wait(["default/train/1"]))
            while not program.got("wait"):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not program.got("cancel"):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(cancelled(), 60))


def test_asyncio_run_ends_the_program_of_its_loop(plan: Plan) -> None:
    program = plan({"status": STATUS})
    client = torchq.aio.Client()
    for _ in range(2):
        assert asyncio.run(client.status()) == {"jobs": 1}
    assert len(program.pids) == 2
    assert not any(alive(pid) for pid in program.pids)
