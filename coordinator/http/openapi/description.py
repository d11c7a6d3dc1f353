"""The OpenAPI document of the coordinators' API.

One rule: paths are listed here once; everything else comes from the models.
"""

from functools import cache
from typing import Any

from coordinator.access.readers import AUDIENCE, HEADER
from coordinator.http.openapi import models, process_models
from coordinator.http.openapi.operations import Description, Operation

_UID = ("uid", "ask for the job of that uid only")
OPERATIONS = (
    Operation("/v1/queues", "All queues with their settings and figures", models.QueueItems),
    Operation("/v1/queues/{name}", "One queue", models.Queue),
    Operation(
        "/v1/places", "The places of the first waiting jobs of some queues", models.PlaceItems,
        (("queues", "names of queues, separated by commas"),),
    ),
    Operation("/v1/jobs/{namespace}/{name}/why", "Where a job stands, and why it waits", models.JobState, (_UID,)),
    Operation("/v1/jobs/{namespace}/{name}/report", "What the pods of a job report", models.JobReport, (_UID,)),
    Operation(
        "/v1/check", "Whether a job could ever run", models.Findings, (("job", "the demands of the job as JSON"),)
    ),
    Operation(
        "/v1/next", "The next picks", models.ForecastPicks,
        (("n", "how many"), ("roomy", "1: as if the pool had room for everything")),
    ),
    Operation("/v1/pool", "The nodes by shape, with what is free on them", models.PoolNodes),
    Operation("/v1/scale/plan", "The plan of resizes of elastic jobs", models.ScalePlan),
    Operation("/v1/status", "The health of the installation", process_models.SystemStatus),
    Operation("/v1/settings", "The settings of this coordinator", process_models.SettingsInUse),
    Operation("/v1/openapi.json", "This document", dict[str, Any]),
)  # fmt: skip


API = Description(
    title="torchq: read-only API of the coordinators",
    text="Users reach it through the API server's proxy of the coordinators' Service. With the token of an "
    f"account for the audience {AUDIENCE} in the header {HEADER}, answers name the jobs that the account may list. "
    "Without a token they name none.",
    operations=OPERATIONS,
    errors={
        "400": "the query is wrong; the message says how",
        "401": "the API server does not accept the token, or the port is on loopback and the request has none",
        "403": "the token is of no account that may list the TorchJobs of this namespace",
        "404": "there is no such object",
        "503": "Redis or the caches of this coordinator do not answer",
    },
)


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return API.document()
