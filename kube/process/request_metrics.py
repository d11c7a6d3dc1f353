"""The metrics of the client of the API server.

One rule: names and labels as in client-go, so that dashboards for client-go show the metrics of torchq, too.
"""

from kube.process.meter import REQUEST_BUCKETS, Metric

NO_ANSWER = "<error>"
"""The code of a request without an answer, as client-go writes it."""

REQUESTS = Metric(
    name="rest_client_requests_total",
    kind="counter",
    help="Requests to the API server by HTTP status and method. Each attempt counts; <error> means that none answered.",
    labels=("code", "method"),
    of="each",
)
REQUEST_SECONDS = Metric(
    name="rest_client_request_duration_seconds",
    kind="histogram",
    help="Time until the API server answered a request. For watches, until they began.",
    labels=("verb",),
    buckets=REQUEST_BUCKETS,
    of="each",
)
WATCH_RESTARTS = Metric(
    name="torchq_watch_restarts_total",
    kind="counter",
    help="Lists and watches of a resource that ended with an error and began again.",
    labels=("resource",),
    of="each",
)
METRICS = (REQUESTS, REQUEST_SECONDS, WATCH_RESTARTS)
