"""The port of a process for its probes and its metrics, apart from the answers that name jobs, and what the process
tells its supervisor: no metrics if it has a port of its own.

One rule: no answer waits for anything, and none names a job.

    /healthz   200 while every loop of the process turns, else 503 with the loops that do not
    /readyz    200 while the process does its work, else 503 with what it lacks
    /metrics   what the process has counted and measured, in the text format of Prometheus; where the settings name a
               file with a token, only to who shows the token

With ?verbose both probes list every check, as kube-apiserver does. A thread of its own makes pages, so that probes are
answered at the same time.
"""

import hmac
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from coordinator.access import key_files
from coordinator.errors import SettingsError
from coordinator.http import listening_ports
from coordinator.http.bounded_server import Answer, HttpServer, Question, ServerLimits
from coordinator.life import channel, health_checks
from coordinator.life import children as life_children
from coordinator.life.channel import Report
from coordinator.life.health_checks import Probes
from coordinator.metrics import exposition, process_page
from coordinator.metrics.increments import Increments
from coordinator.metrics.page import MetricsPage
from coordinator.metrics.process_page import ProcessMetrics
from coordinator.port_settings import PortSettings
from coordinator.settings import Settings

SETTING, TOKEN_SETTING = "metrics_port", "metrics_token_file"
LIMITS = ServerLimits(threads=1, rest=0.0)
"""Pages limit their cost by themselves."""
WRONG_HOST = Answer(
    403, b"the Host header names another host: use localhost or the address of this machine\n", "text/plain"
)
NO_TOKEN = Answer(
    401,
    b"the request has no valid token: Authorization: Bearer, with what is in the file metrics_token_file\n",
    "text/plain",
    {"WWW-Authenticate": "Bearer"},
)
UNKNOWN = Answer(404, b"try /healthz, /readyz or /metrics\n", "text/plain")
METRICS_PATH = "/metrics"
log = logging.getLogger(__name__)


@contextmanager
def serving(settings: PortSettings, probes: Probes, page: MetricsPage | None = None) -> Iterator[str]:
    """Answer probes and show a page of metrics while the block runs; yield the URL, or an empty text if the settings
    turn the port off.

    Raises CoordinatorError, which names the setting, if the port cannot be used or the file with the token has none.
    """
    address, port = settings.metrics_address, settings.metrics_port
    if port == 0:
        yield ""
        return
    token = _token(settings.metrics_token_file)

    def answer_quickly(question: Question) -> Answer | None:
        if not listening_ports.is_for_address(question.host, address):
            return WRONG_HOST
        if page is not None and urlsplit(question.path).path == METRICS_PATH:
            return None if _is_let_in(question, token) else NO_TOKEN
        return probe_answer(probes, question.path) or UNKNOWN

    server = HttpServer(answer_quickly, lambda _: _show(page) if page else UNKNOWN, dict, LIMITS)
    with listening_ports.listening(server, SETTING, address, port) as bound:
        yield listening_ports.url(address, bound)


def _token(path: str) -> bytes | None:
    """Return the token that readers of the metrics have to show; None if none is asked for. Raises SettingsError."""
    if not path:
        return None
    token = key_files.read(TOKEN_SETTING, path)
    if token is None:
        raise SettingsError(f"setting {TOKEN_SETTING}: {path}: there is no such file")
    return token


def _is_let_in(question: Question, token: bytes | None) -> bool:
    scheme, _, shown = question.authorization.partition(" ")
    is_shown = token is not None and hmac.compare_digest(shown.strip().encode("latin-1", "replace"), token)
    return token is None or (scheme.lower() == "bearer" and is_shown)


def _show(page: MetricsPage) -> Answer:
    try:
        return Answer(200, page.text(), exposition.CONTENT_TYPE)
    except Exception:
        log.exception("GET %s", METRICS_PATH)
        return Answer(500, b"the page could not be made: see the log of the process\n", "text/plain")


def probe_answer(probes: Probes, path: str) -> Answer | None:
    """Return the answer to a request for a path with its query; None if it is no probe."""
    parts = urlsplit(path)
    found = health_checks.answer(probes, parts.path, parts.query)
    return Answer(found.code, found.text.encode() + b"\n", "text/plain") if found else None


@contextmanager
def alive(
    settings: Settings,
    probes: Probes,
    figures: ProcessMetrics,
    queues: Callable[[], Iterable[str] | None] = lambda: None,
) -> Iterator[None]:
    """Answer probes and show metrics at the port of the settings, and tell the supervisor, while the block runs.

    `queues` returns the names of all queues, if they are known.
    """
    told = Increments(figures.registry, queues, implicit=settings.implicit_queues)
    with serving(settings, probes, figures.page) as url:

        def report() -> Report:
            return {**life_children.report(probes, url), **({} if url else {process_page.FIELD: told.report()})}

        with channel.telling(report, figures.registry.news):
            yield
