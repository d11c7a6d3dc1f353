"""The example's file that sends reports: it never raises an error, never waits, and leaves out values that JSON does
not have.
"""

import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.servers

FILE = Path(__file__).parents[3] / "examples" / "elastic" / "report.py"


class Coordinator(ThreadingHTTPServer):
    """A server that records reports, and answers once the test allows answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str, Any]] = []
        self.may_answer = threading.Event()
        self.answers: list[tuple[int, bytes]] = []


class Handler(BaseHTTPRequestHandler):
    server: Coordinator

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers["Authorization"], sent))
        self.server.may_answer.wait(SECONDS)
        code, body = self.server.answers.pop(0) if self.server.answers else (200, b"{}")
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    with Coordinator() as server:
        server.may_answer.set()
        monkeypatch.setenv("TORCHQ_REPORT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("TORCHQ_REPORT_TOKEN", "uid.code")
        monkeypatch.setenv("TORCHQ_JOB", "team/train")
        monkeypatch.setenv("TORCHQ_POD", "train-worker-0")
        monkeypatch.delenv("LOCAL_RANK", raising=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def report() -> Any:
    """Return a fresh copy of the module, whose thread sends each report at once."""
    spec = importlib.util.spec_from_file_location("report", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SECONDS = module.SECONDS_WHILE_ASKED = 0.01
    return module


def test_a_report_is_sent_without_what_cannot_be_sent(coordinator: Coordinator, report: Any) -> None:
    gauges = {"lr": float("inf"), "x": "text", "grad": 2}
    report.report(7, loss=float("nan"), samplesPerSecond=1.5, gauges=gauges, model=object())
    until(lambda: coordinator.requests)
    [(path, authorization, body)] = coordinator.requests
    assert (path, authorization) == ("/v1/jobs/team/train/report", "Bearer uid.code")
    assert {name: value for name, value in body.items() if value is not None} == {
        "pod": "train-worker-0",
        "step": 7,
        "loss": "nan",
        "samplesPerSecond": 1.5,
        "gauges": {"lr": "inf", "x": None, "grad": 2},
    }


def test_steps_go_on_while_the_coordinator_hangs_and_the_newest_one_is_sent(
    coordinator: Coordinator, report: Any
) -> None:
    coordinator.may_answer.clear()
    report.report(1)
    until(lambda: coordinator.requests)
    before = time.monotonic()
    for step in range(2, 10_000):
        report.report(step)
    assert time.monotonic() - before < SECONDS
    coordinator.may_answer.set()
    until(lambda: len(coordinator.requests) == 2)
    assert [body["step"] for *_, body in coordinator.requests] == [1, 9_999]


def test_a_request_to_save_is_returned_and_its_answer_sent(coordinator: Coordinator, report: Any) -> None:
    coordinator.answers = [(200, b'{"checkpoint":70}'), (429, b""), (200, b"no JSON")]
    coordinator.may_answer.clear()
    assert report.report(1) == 0
    coordinator.may_answer.set()
    until(lambda: report.report(2) == 70)
    assert report.report(3, checkpoint=70) == 70
    until(lambda: coordinator.requests[-1][2].get("checkpoint") == 70)


def test_an_answer_to_a_request_is_sent_at_once_and_only_once(coordinator: Coordinator, report: Any) -> None:
    coordinator.answers = [(200, b'{"checkpoint":70}')]
    report.SECONDS = report.SECONDS_WHILE_ASKED = 10 * SECONDS
    report.report(1)
    until(lambda: report.report(2) == 70)
    report.report(3, checkpoint=70)
    until(lambda: coordinator.requests[-1][2].get("checkpoint") == 70)
    report.report(4, checkpoint=70)
    report.report(5, checkpoint=9)
    assert not report._saved.is_set()
    assert len(coordinator.requests) == 2


def test_nothing_is_raised_if_nobody_answers(
    coordinator: Coordinator, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHQ_REPORT_URL", "http://127.0.0.1:1")
    assert report.report(1) == 0
    assert report.report("not a step", loss=[]) == 0


def test_nothing_is_raised_if_the_process_has_no_more_threads(
    coordinator: Coordinator, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(report.threading.Thread, "start", fail)
    assert (report.report(1), report.report(2)) == (0, 0)


@pytest.mark.parametrize("change", [{"LOCAL_RANK": "1"}, {"TORCHQ_REPORT_TOKEN": None}])
def test_outside_of_torchq_and_in_other_processes_nothing_happens(
    coordinator: Coordinator, report: Any, monkeypatch: pytest.MonkeyPatch, change: dict[str, str | None]
) -> None:
    for name, value in change.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    assert report.report(1) == 0
    assert "report" not in {thread.name for thread in threading.enumerate() if thread._target is report._send_reports}  # type: ignore[attr-defined]
    assert coordinator.requests == []


def test_the_file_is_short() -> None:
    assert len(FILE.read_text().splitlines()) <= 50
