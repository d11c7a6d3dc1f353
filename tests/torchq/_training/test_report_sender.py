"""The thread that sends reports, against the coordinator's own port for reports."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from coordinator.reports.body import parse
from tests.support.ports import reserve
from tests.support.training.reporting_job import ReportingJob, reporting_job
from tests.support.waiting import SECONDS, until
from torchq._training.json_values import as_text
from torchq._training.report_sender import ReportSender, as_body

pytestmark = pytest.mark.servers


@pytest.fixture
def place() -> Iterator[ReportingJob]:
    with reporting_job() as found:
        yield found


Make = Callable[..., ReportSender]


@pytest.fixture
def make(place: ReportingJob) -> Iterator[Make]:
    """Return a function that makes a sender to an address; by default, to the address of the job's coordinator."""
    with contextlib.ExitStack() as stack:

        def make(url: str = "", seconds: float = 0.01) -> ReportSender:
            sender = ReportSender((url or place.access[0], *place.access[1:]), seconds)
            stack.callback(sender.finish, SECONDS)
            return sender

        yield make


def turns_of(sender: ReportSender) -> list[float]:
    """Return a list that has one more number whenever the sender begins to wait for its next turn."""
    turns: list[float] = []
    take = sender._take
    sender._take = lambda turn: (turns.append(turn), take(turn))[1]  # type: ignore[method-assign]
    return turns


def test_a_report_arrives_with_its_fields_and_gauges(place: ReportingJob, make: Make) -> None:
    make().offer({"step": 7, "loss": 0.5, "samples_per_second": 80, "grad_norm": 2, "lr": 0.1})
    report = until(place.newest)
    assert (report.step, report.loss, report.samples_per_second) == (7, 0.5, 80.0)
    assert report.gauges == {"grad_norm": 2.0, "lr": 0.1}


def test_sixteen_gauges_go_and_the_coordinator_takes_them() -> None:
    body = as_body({"step": 1, **{f"g{number}": number for number in range(20)}}, "pod")
    report = parse(as_text(body).encode())
    assert list(report.gauges) == [f"g{number}" for number in range(16)]


def test_a_report_that_comes_too_early_waits_for_another_turn(place: ReportingJob, make: Make) -> None:
    sender = make()
    turns = turns_of(sender)
    sender.offer({"step": 1})
    until(place.newest)
    sender.offer({"step": 2})
    until(lambda: len(turns) > 2)
    place.clock.step(5)
    until(place.newest, lambda report: report.step == 2)


def test_the_end_sends_the_report_that_waits_though_the_pod_has_just_reported(place: ReportingJob, make: Make) -> None:
    sender = make(seconds=10 * SECONDS)
    sender.offer({"step": 1})
    until(place.newest)
    for step in (2, 3):
        sender.offer({"step": step})
    sender.finish(SECONDS)
    assert place.newest().step == 3  # type: ignore[union-attr]


def test_an_answer_to_a_request_to_save_waits_for_no_turn_once_for_each_request(
    place: ReportingJob, make: Make
) -> None:
    place.save_request = 70
    sender = make(seconds=10 * SECONDS)
    sender.offer({"step": 1})
    until(lambda: sender.requested_save == 70)
    sender.offer({"step": 2, "checkpoint": 70})
    until(place.newest, lambda report: report.checkpoint == 70)
    sender.offer({"step": 3, "checkpoint": 70})
    assert not sender._is_urgent
    sender.requested_save = 80
    sender.offer({"step": 4, "checkpoint": 70})
    assert not sender._is_urgent
    place.save_request = 80
    sender.offer({"step": 5, "checkpoint": 80})
    until(place.newest, lambda report: report.checkpoint == 80)


def test_a_request_to_save_is_known_and_its_answer_survives_newer_reports(place: ReportingJob, make: Make) -> None:
    place.save_request = 70
    sender = make()
    sender.offer({"step": 1})
    until(lambda: sender.requested_save == 70)
    sender.offer({"step": 2, "checkpoint": 70})
    sender.offer({"step": 3})
    place.clock.step(5)
    until(lambda: (sender.offer({"step": 4}), place.newest())[1], lambda report: report.checkpoint == 70)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "no url", "file:///etc"])
def test_a_coordinator_that_does_not_answer_is_passed_over_in_silence(
    make: Make, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with reserve() as port:
        sender = make(url.format(port=port))
        turns = turns_of(sender)
        for step in range(3):
            sender.offer({"step": step})
            until(lambda sent=step + 1: len(turns) > sent)  # type: ignore[misc]
    assert sender._thread is not None
    assert sender._thread.is_alive()
    assert capfd.readouterr() == ("", "")


class Elsewhere(BaseHTTPRequestHandler):
    """A server that answers that the report belongs to another server."""

    asked: list[tuple[str, str]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.asked.append((self.command, self.path))
        self.send_response(302)
        self.send_header("Location", "/stolen")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_the_token_goes_to_no_other_server(make: Make) -> None:
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        sender = make(f"http://127.0.0.1:{server.server_port}", seconds=0.0)
        for count in (1, 2):
            sender.offer({"step": count})
            until(lambda expected=count: len(Elsewhere.asked) >= expected)  # type: ignore[misc]
        server.shutdown()
        thread.join()
    assert {path for _, path in Elsewhere.asked} == {"/v1/jobs/team/train/report"}
