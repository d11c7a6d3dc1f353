"""The recorder's read-only API: the history of jobs, and who used how much.

One rule: answers are bounded, come from the store alone, and name nothing of a namespace whose TorchJobs the reader may
not list. Who shows no token of an account is told nothing of the history.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from coordinator.access.readers import AUDIENCE, HEADER, Reader
from coordinator.access.token_reviews import TokenReviews
from coordinator.http import bounded_server, json_answers, life_port, listening_ports
from coordinator.http.bounded_server import Answer, HttpServer, Question
from coordinator.http.json_answers import REFUSALS, NotTold
from coordinator.http.openapi import history_models
from coordinator.http.openapi.operations import Description, Operation
from coordinator.lease_settings import API_ANNOTATION, SERVICE_ANNOTATION
from coordinator.query import api_paths
from coordinator.query.questions import Document
from coordinator.rbac.permissions import RECORDER_SERVICE
from coordinator.settings import Settings
from history.store import HistoryStore

_SPAN = (
    ("month", "a month, as 2026-11"),
    ("since", "the beginning of the span: a time, a date, or how long ago, as 7d"),
    ("until", "the end of the span, with since"),
    ("tz", "the time zone of months and dates, as Europe/Berlin; UTC if it is not given"),
)
OPERATIONS = (
    Operation(
        "/v1/history", "Jobs, newest submission first", history_models.PastJobs,
        (
            ("namespace", "the namespace of the jobs; without it, all that the reader may read"),
            ("queue", "the queue"),
            ("user", "who submitted them"),
            ("outcome", "Succeeded, Failed, Cancelled or Deleted"),
            *_SPAN,
            ("limit", "the most jobs of the page"),
            ("continue", "what the page before has given"),
        ),
    ),
    Operation(
        "/v1/history/{namespace}/{name}", "One job with its holds", history_models.PastJobDetails,
        (("uid", "one of several jobs of this name; without it, the newest"),),
    ),
    Operation(
        "/v1/usage", "Who used how much", history_models.Usage,
        (*_SPAN, ("by", "queue, namespace or user")),
    ),
    Operation(
        "/v1/timeline", "The share of a queue step by step, and its jobs in time", history_models.Timeline,
        (("queue", "the queue"), *_SPAN),
    ),
    Operation("/v1/openapi.json", "This document", dict[str, Any]),
)  # fmt: skip
API = Description(
    title="torchq: read-only API of the recorder",
    text="Users reach it through the API server's proxy of the recorders' Service. With the token of an account for "
    f"the audience {AUDIENCE} in the header {HEADER}, answers are about the namespaces whose TorchJobs the account may "
    "list. Without a token only this document is answered.",
    operations=OPERATIONS,
    errors={
        "400": "the query is wrong; the message says how",
        "401": "the request has no token, or the API server does not accept the token",
        "403": "the token is of no account that may list the TorchJobs of this namespace",
        "404": "there is no such job",
        "503": "the database or the API server does not answer",
    },
)
SETTING = "health_port"
LIMITS = replace(bounded_server.LIMITS, seconds=75.0)
"""An answer about a year may take longer than others; commands wait for a minute."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HistoryApi:
    """Answers GET requests for paths below /v1."""

    store: Callable[[], HistoryStore]
    """A function that returns the store. Raises HistoryError while there is none."""
    reviews: TokenReviews
    settings: Settings
    clock: Callable[[], float] = time.time

    def refuse_quickly(self, request: Question) -> Answer | None:
        """Return the refusal of a request that names another host; None for any other request."""
        is_for_here = listening_ports.is_for_address(request.host, self.settings.health_address)
        return None if is_for_here else life_port.WRONG_HOST

    def answer(self, request: Question) -> Answer:
        """Return the answer to a request; an error becomes an answer as well."""
        try:
            return json_answers.encode(HTTPStatus.OK, self._answer(request))
        except REFUSALS as error:
            return _refuse(error)
        except Exception:
            log.exception("GET %s", request.path[:100])
            message = "the request failed in the recorder: see its log"
            return _refuse(NotTold(HTTPStatus.INTERNAL_SERVER_ERROR, message))

    def _answer(self, request: Question) -> Document:
        path, query = api_paths.parse(request.path)
        if path == ["v1", "openapi.json"]:
            return API.document
        reader = self._reader(request.token)
        if path[:2] == ["v1", "history"] and len(path) == 4 and not reader.may_read(path[2]):
            raise NotTold(HTTPStatus.FORBIDDEN, _untold(path[2]))
        namespaces = None if reader.everywhere else reader.namespaces
        prices, cost = self.settings.price_table, self.settings.cost
        return api_paths.answer_history(path, query, self.store, namespaces, int(self.clock()), prices, cost)

    def _reader(self, token: str) -> Reader:
        """Return who asks. Raises NotTold without the token of an account that may list TorchJobs, and if the API
        server does not answer."""
        if not token:
            raise NotTold(HTTPStatus.UNAUTHORIZED, f"the request has no token: send one of an account in {HEADER}")
        reader = json_answers.reader_of(self.reviews, token, "recorder")
        if not (reader.everywhere or reader.namespaces):
            raise NotTold(
                HTTPStatus.FORBIDDEN, "the token is of an account that may list the TorchJobs of no namespace"
            )
        return reader


@contextmanager
def serving(
    store: Callable[[], HistoryStore],
    reviews: TokenReviews,
    settings: Settings,
    clock: Callable[[], float] = time.time,
) -> Iterator[Mapping[str, str]]:
    """Answer requests while the block runs; yield the annotations by which the recorder's Lease says where.

    The Lease names the URL of an address on loopback, and the Service for any other address, which is that of a pod.
    Without a `health_port` there is no API, and there are no annotations. Raises CoordinatorError, which names the
    setting, if the port cannot be used.
    """
    address, port = settings.health_address, settings.health_port
    if port == 0:
        yield {}
        return
    api = HistoryApi(store, reviews, settings, clock)
    server = HttpServer(api.refuse_quickly, api.answer, dict, LIMITS)
    with listening_ports.listening(server, SETTING, address, port) as bound:
        is_local = address in listening_ports.LOOPBACK
        url = listening_ports.url(address, bound)
        yield {API_ANNOTATION: url} if is_local else {SERVICE_ANNOTATION: settings.recorder_service}


def _refuse(error: Exception) -> Answer:
    return json_answers.encode(*json_answers.refusal(error, RECORDER_SERVICE))


def _untold(namespace: str) -> str:
    return (
        f"the history of namespace {namespace} is told to accounts that may list its TorchJobs: the token of the "
        f"request is of another account (torchq rbac --tenant {namespace})"
    )
