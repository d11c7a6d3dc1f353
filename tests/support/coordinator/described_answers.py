"""Every answer of the read-only API that a test gets is checked against its description.

One rule: an answer with a field that the description lacks, or without a field that it promises, fails the test.
"""

from functools import cache
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import TypeAdapter

from coordinator.http import history_api, queue_api
from coordinator.http.openapi import queue_models

APIS = (queue_api.API, history_api.API)


def check(path: str, code: int, document: Any) -> None:
    """Raise pydantic.ValidationError if an answer does not agree with its description."""
    _adapter(urlsplit(path).path if code == 200 else "").validate_json(orjson.dumps(document), strict=True)


@cache
def _adapter(path: str) -> TypeAdapter[Any]:
    model = answer_model(path) if path else queue_models.FailureStatus
    assert model is not None, f"{path} is not in the description of the API"
    return TypeAdapter(model)


def answer_model(path: str) -> Any:
    """Return the model of the answers to a path, such as /v1/queues/a; None for a path that is in no API."""
    parts = path.strip("/").split("/")
    every = [each for api in APIS for each in api.operations]
    for operation in sorted(every, key=lambda operation: "{" in operation.path):
        pattern = operation.path.strip("/").split("/")
        if len(pattern) == len(parts) and all(
            expected.startswith("{") or expected == part for expected, part in zip(pattern, parts, strict=True)
        ):
            return operation.answer
    return None
