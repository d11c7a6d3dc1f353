"""The port of a process for its probes, apart from what names jobs.

One rule: no answer waits for anything, and none names a job.

    /healthz   200 while every loop of the process turns, else 503 with the loops that do not
    /readyz    200 while the process does its work, else 503 with what it lacks

With ?verbose both list every check, as kube-apiserver does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from coordinator.http import ports
from coordinator.http.bounded_server import Answer, HttpServer, Question, ServerLimits
from coordinator.life import checks
from coordinator.life.checks import Probes
from coordinator.port_settings import PortSettings

SETTING = "metrics_port"
LIMITS = ServerLimits(threads=1)
WRONG_HOST = Answer(
    403, b"the Host header names another host: use localhost or the address of this machine\n", "text/plain"
)
UNKNOWN = Answer(404, b"try /healthz or /readyz\n", "text/plain")


@contextmanager
def serving(settings: PortSettings, probes: Probes) -> Iterator[str]:
    """Answer probes while the block runs; yield the URL, or an empty text if the settings turn the port off.

    Raises CoordinatorError, which names the setting, if the port cannot be used.
    """
    address, port = settings.metrics_address, settings.metrics_port
    if port == 0:
        yield ""
        return

    def answer(question: Question) -> Answer:
        if not ports.is_for_address(question.host, address):
            return WRONG_HOST
        return probe_answer(probes, question.path) or UNKNOWN

    server = HttpServer(answer, answer, dict, LIMITS)
    with ports.listening(server, SETTING, address, port) as bound:
        yield ports.url(address, bound)


def probe_answer(probes: Probes, path: str) -> Answer | None:
    """Return the answer to a request for a path with its query; None if it is no probe."""
    parts = urlsplit(path)
    found = checks.answer(probes, parts.path, parts.query)
    return Answer(found.code, found.text.encode() + b"\n", "text/plain") if found else None
