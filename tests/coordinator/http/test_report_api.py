"""The port for reports: which clients are let in, which requests are refused, and that no client costs another client
anything.
"""

import contextlib
import json
import logging
import select
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from coordinator.cache.job_health import JobHealth
from coordinator.cache.views import JobView
from coordinator.http import report_port
from coordinator.http.bounded_server import HttpServer, ServerLimits
from coordinator.http.report_api import ReportApi
from coordinator.reports.batches import ReportBatches
from coordinator.reports.report_values import Progress
from coordinator.reports.tokens import ReportKey
from crds.keys import JobKey
from crds.torchjob.jobspec import Health
from kube.errors import Unreachable
from tests.doubles.memory_reports import MemoryReports
from tests.support.clock import START, Clock
from tests.support.coordinator.builders import KEY, job
from tests.support.waiting import SECONDS

pytestmark = pytest.mark.servers

SECRET = ReportKey(b"a key of the installation")
FORGED = ReportKey(b"a key of somebody else...")
OTHER = JobKey("team", "other", "u2")
POD = "train-worker-0"
PATH = "/v1/jobs/team/train"
SMALL = replace(report_port.LIMITS, connections=40, connections_of_address=20, head_seconds=0.3, seconds=2 * SECONDS)
WORLD = {"size": 2, "rank": 1, "min": 1, "max": 4, "generation": 0, "target": 2}


class Place:
    """A port for reports, over jobs of a test."""

    def __init__(self, limits: ServerLimits) -> None:
        self.clock = Clock()
        self.jobs: dict[str, JobView] = {"train": job(), "other": job(key=OTHER), "over": job(finished=True)}
        self.store = MemoryReports(self.clock)
        self.batches = ReportBatches(self.store, clock=self.clock)
        self.is_ready = True
        self.worlds: Mapping[str, Any] | Exception | None = WORLD
        api = ReportApi(
            key=SECRET,
            batches=self.batches,
            find=lambda namespace, name: self.jobs.get(name) if namespace == "team" else None,
            has_pod=lambda key, pod: (key, pod) in {(KEY, POD), (KEY, "train-worker-1"), (OTHER, "other-worker-0")},
            is_ready=lambda: self.is_ready,
            world=self.world,
        )
        server = HttpServer(api.answer_quick, api.answer_slow, dict, limits)
        self.running = lambda: server.running("127.0.0.1", 0)
        self.port = 0

    def world(self, key: JobKey, pod: str) -> Mapping[str, Any] | None:
        if isinstance(self.worlds, Exception):
            raise self.worlds
        return self.worlds and {**self.worlds, "asked": [str(key), pod]}

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS, source_address=(source, 0))

    def send(self, raw: bytes, source: str = "127.0.0.1") -> tuple[int, dict[str, str], Any]:
        """Send bytes, and return status, headers and document of the answer. The status is 0 if there is no answer.."""
        with self.connect(source) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(raw)
            return parsed(whole(connection))

    def post(self, body: Any = None, path: str = f"{PATH}/report", token: str | None = "", **changes: Any) -> Any:
        sent = body if isinstance(body, bytes) else json.dumps({"pod": POD, "step": 1, **changes}).encode()
        return self.send(request("POST", path, token if token != "" else SECRET.token(KEY.uid), sent))

    def get(self, path: str, token: str | None = "") -> Any:
        return self.send(request("GET", path, token if token != "" else SECRET.token(KEY.uid)))


def request(method: str, path: str, token: str | None, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [] if token is None else [f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def whole(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


def parsed(answer: bytes) -> tuple[int, dict[str, str], Any]:
    if not answer:
        return 0, {}, None
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body) if "json" in headers["Content-Type"] else body


@contextlib.contextmanager
def started(limits: ServerLimits) -> Iterator[Place]:
    place = Place(limits)
    with place.running() as place.port:
        yield place


@pytest.fixture
def place() -> Iterator[Place]:
    with started(SMALL) as found:
        yield found


def test_a_report_reaches_the_store(place: Place) -> None:
    code, headers, document = place.post(samplesPerSecond=10.5, loss=0.1, gauges={"lr": 1e-3}, time=0)
    assert (code, document, headers["Content-Type"]) == (200, {}, "application/json")
    place.batches.write()
    report = place.store.read([KEY])[KEY].pods[POD]
    assert (report.step, report.at, report.samples_per_second) == (1, START, 10.5)
    assert (report.loss, report.gauges) == (0.1, {"lr": 1e-3})


TRAINER = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/train/status"
STATUS = b'{"trainerStatus": {"progressPercentage": 40, "metrics": [{"name": "loss", "value": "0.5"}]}}'


def test_the_protocol_of_kubeflow_trainer_is_answered_as_by_its_server(place: Place) -> None:
    for body in (STATUS, b"{}"):
        code, headers, document = place.post(body, f"{TRAINER}?pod={POD}")
        assert (code, headers["Content-Type"], document) == (200, "application/json", json.loads(body))
    assert place.post(STATUS, f"{TRAINER}?pod={POD}")[0] == 429
    place.batches.write()
    report = place.store.read([KEY])[KEY].pods[POD]
    assert (report.progress, report.loss) == (Progress(percent=40), 0.5)
    refused = {
        422: (b'{"trainerStatus": {"progressPercentage": 101}}', f"{TRAINER}?pod={POD}", ""),
        400: (STATUS, TRAINER, ""),
        403: (STATUS, f"{TRAINER}?pod={POD}", SECRET.token(OTHER.uid)),
        401: (STATUS, f"{TRAINER}?pod={POD}", None),
        404: (STATUS, f"/v1/jobs/team/train/status?pod={POD}", ""),
    }
    assert {code: place.post(body, path, token)[0] for code, (body, path, token) in refused.items()} == {
        code: code for code in refused
    }
    code, headers, _ = place.get(f"{TRAINER}?pod={POD}")
    assert (code, headers["Allow"]) == (405, "POST")


def test_a_report_tells_the_run_in_which_it_came_whatever_the_pod_says(place: Place) -> None:
    place.post(run="forged")
    place.jobs["train"] = job(health=JobHealth(Health(hang_timeout_seconds=60), "0f", True, None, None))
    place.post(pod="train-worker-1", run="forged")
    place.batches.write()
    pods = place.store.read([KEY])[KEY].pods
    assert {name: report.run for name, report in pods.items()} == {POD: "", "train-worker-1": "0f"}


def test_a_step_may_go_back(place: Place) -> None:
    assert place.post(step=100)[0] == 200
    place.clock.step(15)
    assert place.post(step=40)[0] == 200
    place.batches.write()
    assert place.store.read([KEY])[KEY].pods[POD].step == 40


def test_the_answer_asks_to_save_and_a_report_answers(place: Place) -> None:
    place.jobs["train"] = job(save_request=1234)
    assert place.post()[2] == {"checkpoint": 1234}
    assert place.post(step=2, checkpoint=1234)[0] == 200, "the answer does not wait"
    assert place.post(step=3, checkpoint=1234)[0] == 429
    place.batches.write()
    assert place.store.read([KEY])[KEY].checkpoint == 1234


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (None, 401),
        ("", 401),
        ("x", 401),
        (f"{KEY.uid}.0", 401),
        (FORGED.token(KEY.uid), 401),
        (SECRET.token(OTHER.uid), 403),
        (SECRET.token("gone"), 403),
    ],
)
def test_only_the_token_of_the_job_is_let_in(place: Place, token: str | None, code: int) -> None:
    for raw in (request("POST", f"{PATH}/report", token, b'{"pod":"train-worker-0","step":1}'),
                request("GET", f"{PATH}/world?pod={POD}", token)):  # fmt: skip
        found, headers, document = place.send(raw)
        assert (found, document["code"]) == (code, code)
        assert headers.get("WWW-Authenticate") == ("Bearer" if code == 401 else None)
    place.batches.write()
    assert place.store.read([KEY, OTHER]) == {}


def test_a_token_must_be_a_bearer_token_in_the_header(place: Place) -> None:
    token = SECRET.token(KEY.uid)
    body = b'{"pod":"train-worker-0","step":1}'
    head = f"POST {PATH}/report?token={token} HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
    for more in ("", f"Authorization: {token}\r\n", f"Authorization: Basic {token}\r\n", f"X-Token: {token}\r\n"):
        assert place.send(f"{head}{more}\r\n".encode() + body)[0] == 401
    assert place.send(f"{head}authorization:bearer {token}\r\n\r\n".encode() + body)[0] == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"hello", 400),
        (b'{"pod":"train-worker-0","step":1,"loss":NaN}', 400),
        (b"[" * 8000, 400),
        (b'{"pod":"nobody","step":1}', 400),
        (b'{"pod":"other-worker-0","step":1}', 400),
        (b'{"pod":"train-worker-0","step":1,"x":"' + b"y" * 8192 + b'"}', 413),
        (b"x" * 1_000_000, 413),
    ],
    ids=["empty", "text", "nan", "deep", "no-pod", "pod-of-another-job", "large", "1MB"],
)
def test_a_wrong_body_is_refused_and_nothing_is_kept(
    place: Place, body: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    found, _, document = place.post(body)
    assert found == code
    assert code == 413 or (document["code"] == 400 and document["message"])
    place.batches.write()
    assert place.store.read([KEY, OTHER]) == {}
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]
    assert place.post()[0] == 200, "the pod may report at once after that"


@pytest.mark.parametrize(
    ("name", "code"), [("over", 410), ("none", 404), ("train%2freport", 404), ("%00", 404), ("..", 404)]
)
def test_a_job_that_has_ended_or_is_not_there_takes_no_reports(place: Place, name: str, code: int) -> None:
    assert place.post(path=f"/v1/jobs/team/{name}/report")[0] == code
    assert place.get(f"/v1/jobs/team/{name}/world")[0] == code


def test_a_pod_waits_between_two_reports(place: Place) -> None:
    assert place.post()[0] == 200
    code, headers, _ = place.post(step=2)
    assert (code, headers["Retry-After"]) == (429, "5")
    assert place.post(pod="train-worker-1")[0] == 200, "another pod does not wait"
    assert place.post(step=2, checkpoint=1234)[0] == 429, "nobody has asked for a save"
    assert place.post(step=2, last=True)[0] == 200, "the last report does not wait"
    place.clock.step(5)
    assert place.post(step=3)[0] == 200


def test_a_coordinator_that_does_not_know_the_jobs_asks_to_try_again(place: Place) -> None:
    place.is_ready = False
    code, headers, _ = place.post()
    assert (code, headers["Retry-After"]) == (503, "5")


def test_a_world_is_answered_to_the_pods_of_the_job(place: Place) -> None:
    code, _, document = place.get(f"{PATH}/world?pod={POD}")
    assert (code, document) == (200, {**WORLD, "asked": [str(KEY), POD]})
    place.worlds = None
    assert place.get(f"{PATH}/world")[0] == 404
    place.worlds = Unreachable("away")
    assert place.get(f"{PATH}/world")[0] == 503
    place.worlds = KeyError("a defect")
    assert place.get(f"{PATH}/world")[0] == 500
    assert place.post()[0] == 200, "the threads continue to answer"


@pytest.mark.parametrize(
    "path",
    ["/", "/healthz", "/readyz", "/status", "/v1/queues", "/v1/status", "/v1/next", f"{PATH}/why", f"{PATH}/report/x",
     f"/{PATH}/report", f"{PATH}/world?" + "a=1&" * 2000, "//[/report", "/v1/jobs/team/train"],
)  # fmt: skip
def test_nothing_of_the_read_only_api_is_here(place: Place, path: str) -> None:
    assert place.get(path)[0] == 404
    assert place.post(path=path)[0] == 404


def test_each_path_has_one_method(place: Place) -> None:
    code, headers, _ = place.get(f"{PATH}/report")
    assert (code, headers["Allow"]) == (405, "POST")
    code, headers, _ = place.post(path=f"{PATH}/world")
    assert (code, headers["Allow"]) == (405, "GET")
    for method in ("PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "post"):
        assert place.send(request(method, f"{PATH}/report", SECRET.token(KEY.uid)))[0] == 405


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ("", 411),
        ("Transfer-Encoding: chunked", 411),
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", 411),
        ("Content-Length: -1", 411),
        ("Content-Length: 1e3", 411),
        ("Content-Length: " + "9" * 18, 413),
        ("Content-Length: " + "9" * 5000, 411),
        ("X: " + "y" * 20_000, 431),
    ],
)
def test_a_body_without_a_true_length_is_refused(place: Place, headers: str, code: int) -> None:
    head = f"POST {PATH}/report HTTP/1.1\r\nAuthorization: Bearer {SECRET.token(KEY.uid)}\r\n{headers}\r\n\r\n"
    assert place.send(head.encode() + b'{"pod":"train-worker-0","step":1}')[0] == code


@contextlib.contextmanager
def slow_clients(place: Place) -> Iterator[list[socket.socket]]:
    """Yield connections of one address that have sent a part of a request. The connections are more than the address
    may have at once.
    """
    head = request("POST", f"{PATH}/report", SECRET.token(KEY.uid))
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(place.connect("127.0.0.2")) for _ in range(SMALL.connections_of_address + 30)]
        for number, connection in enumerate(slow):
            with contextlib.suppress(ConnectionError):
                connection.sendall(head[: 20 + number] if number % 2 else head.replace(b"Length: 0", b"Length: 90"))
        yield slow


def test_slow_clients_are_closed(place: Place) -> None:
    with slow_clients(place) as slow:
        assert [whole(connection) for connection in slow] == [b""] * len(slow)


def test_slow_clients_hold_up_nobody() -> None:
    with started(replace(SMALL, head_seconds=2 * SECONDS)) as place, slow_clients(place):
        began = time.monotonic()
        assert place.post()[0] == 200
        assert time.monotonic() - began < SECONDS, "no other client waits for the slow clients"


def test_a_client_may_send_all_of_a_large_body_and_then_read_the_answer() -> None:
    """A client whose connection is closed while it sends never reads the reason."""
    body = b"x" * 1_000_000
    with started(replace(SMALL, head_seconds=SECONDS)) as place, place.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(request("POST", f"{PATH}/report", SECRET.token(KEY.uid), body))
        assert parsed(whole(connection))[0] == 413


def test_a_client_that_sends_without_end_is_answered_and_closed(place: Place) -> None:
    head = request("POST", f"{PATH}/report", SECRET.token(KEY.uid)).replace(b"Length: 0", b"Length: 99999999999")
    with place.connect() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head)
            for _ in range(200):
                connection.sendall(b"x" * 65536)
        assert parsed(whole(connection))[0] in (413, 0), "0: the answer was lost with the connection"
    assert place.post()[0] == 200


def test_one_address_is_slowed_down_and_no_other() -> None:
    with started(replace(SMALL, requests_of_address=20.0, head_seconds=SECONDS)) as place:
        wrong = request("POST", f"{PATH}/report", "x", b"{}")
        began = time.monotonic()
        for _ in range(30):
            assert place.send(wrong, "127.0.0.2")[0] == 401
        assert time.monotonic() - began > 0.4, "the first 20 are answered at once, the others one after the other"
    limits = replace(SMALL, requests_of_address=1.0, head_seconds=SECONDS)
    with started(limits) as place, contextlib.ExitStack() as stack:
        slowed = [stack.enter_context(place.connect("127.0.0.2")) for _ in range(limits.connections_of_address - 1)]
        for connection in slowed:
            connection.sendall(wrong)
        assert place.post()[0] == 200
        assert not select.select(slowed[-1:], [], [], 0)[0], "the last connection has its turn after 18 s"


def test_no_address_pays_for_requests_that_left_before_their_turn() -> None:
    with started(replace(SMALL, requests_of_address=5.0, connections_of_address=5)) as place:
        wrong = request("POST", f"{PATH}/report", "x", b"{}")
        for _ in range(10 * int(SECONDS)):
            with place.connect("127.0.0.2") as connection:
                connection.sendall(wrong)
        began = time.monotonic()
        assert place.send(wrong, "127.0.0.2")[0] == 401
        assert time.monotonic() - began < SECONDS, "600 requests would take 120 s at 5 requests in a second"


def test_no_token_is_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    place.worlds = RuntimeError("a defect")
    for token in (SECRET.token(KEY.uid), SECRET.token(OTHER.uid), "secret-guess"):
        place.post(token=token)
        place.get(f"{PATH}/world", token=token)
        with place.connect() as connection:
            connection.sendall(request("POST", f"{PATH}/report", token)[:-4])
            assert whole(connection) == b"", "the connection is closed after its time limit"
    place.post(b"x" * 20_000)
    text = caplog.text + repr(caplog.records)
    assert "a defect" in text
    assert not any(part in text for part in (SECRET.token(KEY.uid).split(".")[1], "secret-guess", "installation"))
