"""The metrics of the client of the API server.

One rule: names and labels as in client-go, so that dashboards for client-go show the metrics of torchq, too.
"""

from kube.process.meter import REQUEST_BUCKETS, Metric

NO_ANSWER = "<error>"
"""The code of a request without an answer, as client-go writes it."""

REQUESTS = Metric(
    "rest_client_requests_total",
    "Requests to the API server by HTTP status and method. Each attempt counts; <error> means that none answered.",
    of="each",
    labels=("code", "method"),
)
REQUEST_SECONDS = Metric(
    "rest_client_request_duration_seconds",
    "Time until the API server answered a request. For watches, until they began.",
    of="each",
    labels=("verb",),
    buckets=REQUEST_BUCKETS,
)
WATCH_RESTARTS = Metric(
    "torchq_watch_restarts_total",
    "Lists and watches of a resource that ended with an error and began again.",
    of="each",
    labels=("resource",),
)
METRICS = (REQUESTS, REQUEST_SECONDS, WATCH_RESTARTS)
