"""The page /metrics at the port for probes: many readers at once, slow readers, and pages that take long to make."""

import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coordinator.errors import SettingsError
from coordinator.http import life_port
from coordinator.life.health_checks import Check
from coordinator.metrics.page import MetricsPage
from coordinator.port_settings import ANY_PORT, PortSettings
from tests.support.coordinator.hangs import ask
from tests.support.waiting import SECONDS

pytestmark = pytest.mark.servers

LARGE = b"x" * 4_000_000


class Healthy:
    """A process whose loops all turn."""

    def healthz(self) -> Sequence[Check]:
        return ()

    def readyz(self) -> Sequence[Check]:
        return ()


class Press:
    """A source of pages that holds each page back until the test releases it."""

    def __init__(self) -> None:
        self.made = 0
        self.free = threading.Event()

    def __call__(self) -> bytes:
        self.made += 1
        assert self.free.wait(SECONDS)
        return LARGE


@pytest.fixture
def press() -> Press:
    return Press()


@pytest.fixture
def url(press: Press) -> Iterator[str]:
    page = MetricsPage(press, clock=lambda: 0.0, cpu_clock=iter(range(1_000)).__next__)
    with life_port.serving(PortSettings(metrics_port=ANY_PORT), Healthy(), page) as url:
        yield url
        press.free.set()


def test_a_thousand_readers_cost_one_page_and_probes_are_answered_meanwhile(url: str, press: Press) -> None:
    with ThreadPoolExecutor(100) as readers:
        answers = [readers.submit(read, f"{url}/metrics") for _ in range(1_000)]
        for _ in range(20):
            assert ask(f"{url}/healthz") == (200, ["ok"])
        press.free.set()
        found = Counter(answer.result() for answer in answers)
    assert set(found) <= {200, 503, 0}, "0: closed for a newer connection of the same address"
    assert found[200] > 0
    assert press.made == 1
    assert read(f"{url}/metrics") == 200


def test_a_reader_that_takes_nothing_keeps_no_other_reader_waiting(url: str, press: Press) -> None:
    press.free.set()
    parts = urlsplit(url)
    slow = [socket.create_connection((str(parts.hostname), int(parts.port or 0))) for _ in range(10)]
    for each in slow:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        each.sendall(f"GET /metrics HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    assert [read(f"{url}/metrics") for _ in range(5)] == [200] * 5
    for each in slow:
        each.close()


def test_a_page_that_cannot_be_made_is_answered_with_500_and_one_that_names_another_host_with_403(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> bytes:
        raise ValueError("a defect")

    with life_port.serving(PortSettings(metrics_port=ANY_PORT), Healthy(), MetricsPage(fail)) as url:
        assert read(f"{url}/metrics") == 500
        assert read(f"{url}/metrics", host="example.org") == 403
        assert ask(f"{url}/readyz") == (200, ["ok"])
    assert "a defect" in caplog.text


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer other", "Basic {token}", "{token}", "Bearer {token}x"])
def test_a_port_with_a_token_shows_metrics_to_who_has_it_and_answers_probes_to_all(tmp_path: Path, shown: str) -> None:
    token = "a token of metrics"
    (tmp_path / "token").write_text(f"{token}\n")
    settings = PortSettings(metrics_port=ANY_PORT, metrics_token_file=str(tmp_path / "token"))
    with life_port.serving(settings, Healthy(), MetricsPage(lambda: LARGE)) as url:
        assert read(f"{url}/metrics", authorization=shown.format(token=token)) == 401
        assert read(f"{url}/metrics?x=1") == 401
        assert read(f"{url}/metrics", authorization=f"bearer {token}") == 200
        assert ask(f"{url}/healthz") == ask(f"{url}/readyz") == (200, ["ok"])


@pytest.mark.parametrize(("text", "problem"), [(None, "there is no such file"), ("short", "a key has 16 to")])
def test_a_port_without_the_token_of_its_settings_is_not_opened(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    settings = PortSettings(metrics_port=ANY_PORT, metrics_token_file=str(path))
    with pytest.raises(SettingsError, match=f"metrics_token_file: .*{problem}"), life_port.serving(settings, Healthy()):
        pass


def read(url: str, host: str = "", authorization: str = "") -> int:
    """Return the status of an answer that was read whole; 0 if the connection was closed."""
    sent = {"Host": host, "Authorization": authorization}
    request = urllib.request.Request(url, headers={name: text for name, text in sent.items() if text})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert len(answer.read()) == len(LARGE)
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, http.client.HTTPException):
        return 0
