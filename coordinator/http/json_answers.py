"""Answers of read-only APIs: JSON documents, and refusals as an API server writes them, so that its proxy passes their
messages on."""

import logging
from http import HTTPStatus
from typing import Any

import orjson

from coordinator.access.readers import Reader
from coordinator.access.token_reviews import TokenReviews
from coordinator.http.bounded_server import Answer
from coordinator.query.questions import Document, UnknownObject
from history.errors import HistoryError, InvalidQuery
from kube.errors import ClusterError
from queues.errors import QueueError

log = logging.getLogger(__name__)


class NotTold(Exception):
    """Who asks may not know the answer; the message says why."""

    def __init__(self, code: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code


class MalformedQuery(ValueError):
    """The query of a request is wrong; the message says why."""


class StaleCaches(Exception):
    """The coordinator may not know the newest state of the cluster; the message says why."""


REFUSALS = (NotTold, UnknownObject, MalformedQuery, InvalidQuery, StaleCaches, QueueError, HistoryError)
"""The errors with which a request is refused in words."""


def refusal(error: Exception, name: str = "torchq-coordinator") -> tuple[int, Document]:
    """Return the code and the document of an error; `name` is what refuses."""
    code = HTTPStatus.SERVICE_UNAVAILABLE
    match error:
        case NotTold():
            code = error.code
        case UnknownObject():
            code = HTTPStatus.NOT_FOUND
        case MalformedQuery() | InvalidQuery():
            code = HTTPStatus.BAD_REQUEST
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": str(error),
                  "details": {"name": name}}  # fmt: skip


def reader_of(reviews: TokenReviews, token: str, process: str) -> Reader:
    """Return the account that has shown a token. Raises NotTold for a token that is not valid, and if the API server
    does not answer the `process`."""
    try:
        reader = reviews.reader(token)
    except ClusterError as error:
        log.warning("a token cannot be reviewed: %s", error)
        message = f"the {process} cannot ask the API server about the token of the request: try again"
        raise NotTold(HTTPStatus.SERVICE_UNAVAILABLE, message) from error
    if reader is None:
        raise NotTold(HTTPStatus.UNAUTHORIZED, "the API server does not accept the token of the request")
    return reader


def encode(code: int, document: Any) -> Answer:
    """Return a document as an answer."""
    return Answer(code, orjson.dumps(document) + b"\n", "application/json")


def text(code: int, message: str) -> Answer:
    """Return a message for people as an answer."""
    return Answer(code, message.encode() + b"\n", "text/plain")
