"""The OpenAPI document of the recorder's API.

One rule: paths are listed here once; everything else comes from the models.
"""

from functools import cache
from typing import Any

from coordinator.access.readers import AUDIENCE, HEADER
from coordinator.http.openapi import history_models
from coordinator.http.openapi.operations import Description, Operation

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


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return API.document()
