"""Answers of read-only APIs: JSON documents, and refusals as an API server writes them, so that its proxy passes their
messages on."""

from http import HTTPStatus
from typing import Any

import orjson

from coordinator.http.bounded_server import Answer
from coordinator.query.questions import Document


class NotTold(Exception):
    """Who asks may not know the answer; the message says why."""

    def __init__(self, code: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code


def refusal(code: int, error: Exception | str, name: str = "torchq-coordinator") -> tuple[int, Document]:
    """Return the code and the document of an error; `name` is what refuses."""
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": str(error),
                  "details": {"name": name}}  # fmt: skip


def encode(code: int, document: Any) -> Answer:
    """Return a document as an answer."""
    return Answer(code, orjson.dumps(document) + b"\n", "application/json")


def text(code: int, message: str) -> Answer:
    """Return a message for people as an answer."""
    return Answer(code, message.encode() + b"\n", "text/plain")
