"""Every answer of the read-only API that a test sees is held against its description.

One rule: an answer with a field that the description lacks, or without one that it promises, fails the test that asked.
"""

from functools import cache
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import TypeAdapter

from coordinator.http.openapi import description, models


def check(path: str, code: int, document: Any) -> None:
    """Raise pydantic.ValidationError if an answer is not as its description says."""
    _adapter(urlsplit(path).path if code == 200 else "").validate_json(orjson.dumps(document), strict=True)


@cache
def _adapter(path: str) -> TypeAdapter[Any]:
    model = description.answer_model(path) if path else models.FailureStatus
    assert model is not None, f"{path} is not in the description of the API"
    return TypeAdapter(model)
