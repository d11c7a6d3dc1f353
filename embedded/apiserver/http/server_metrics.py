"""The metrics of the API server, for people, benchmarks and tests of budgets: its requests and its objects.

One rule: counting is one addition per request; the text is produced on request.

The names are those of Kubernetes where Kubernetes has the same metric. A client is named by the first word of its
User-Agent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

RequestLabels = tuple[str, str, str, str]
"""The labels of a request: client, verb, resource, subresource."""

_COLLECTION_VERBS = {"GET": "LIST", "POST": "CREATE", "DELETE": "DELETECOLLECTION"}
_OBJECT_VERBS = {"PUT": "UPDATE"}
_LONGEST_CLIENT = 64
_MOST_CLIENTS = 100
"""The most clients that are counted separately. Later clients are counted as `others`, which bounds the memory."""


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.requests: Counter[RequestLabels] = Counter()
        self.refusals: Counter[tuple[int, str]] = Counter()
        """The number of refusals by code and reason."""
        self._clients: set[str] = set()

    def count_request(self, agent: str, verb: str, resource: str, subresource: str) -> None:
        """Count a request."""
        self.requests[self._client(agent), verb, resource, subresource] += 1

    def count_refusal(self, code: int, reason: str) -> None:
        """Count a refused request."""
        self.refusals[code, reason] += 1

    def _client(self, agent: str) -> str:
        parts = agent.split(maxsplit=1)
        name = parts[0].partition("/")[0][:_LONGEST_CLIENT] if parts else ""
        if name not in self._clients:
            if len(self._clients) >= _MOST_CLIENTS:
                return "others"
            self._clients.add(name)
        return name

    def text(self, objects: Mapping[str, int], watches: int, remembered: int) -> str:
        """Return the metrics in the Prometheus text format; `remembered` counts the changes for watches."""
        return "".join(f"{line}\n" for line in self._lines(objects, watches, remembered))

    def _lines(self, objects: Mapping[str, int], watches: int, remembered: int) -> Iterator[str]:
        yield "# TYPE apiserver_request_total counter"
        for (client, verb, resource, subresource), count in sorted(self.requests.items()):
            labels = {"client": client, "verb": verb, "resource": resource, "subresource": subresource}
            yield _line("apiserver_request_total", labels, count)
        yield "# TYPE apiserver_refused_total counter"
        for (code, reason), count in sorted(self.refusals.items()):
            yield _line("apiserver_refused_total", {"code": str(code), "reason": reason}, count)
        yield "# TYPE apiserver_storage_objects gauge"
        for resource, count in sorted(objects.items()):
            yield _line("apiserver_storage_objects", {"resource": resource}, count)
        yield "# TYPE apiserver_watches gauge"
        yield _line("apiserver_watches", {}, watches)
        yield "# TYPE apiserver_watch_history gauge"
        yield _line("apiserver_watch_history", {}, remembered)


def verb(method: str, is_object: bool, watching: bool) -> str:
    """Return the API's verb for an HTTP method: a GET is a LIST for a collection, a GET for an object."""
    if watching:
        return "WATCH"
    return (_OBJECT_VERBS if is_object else _COLLECTION_VERBS).get(method, method)


def _line(name: str, labels: Mapping[str, str], value: int) -> str:
    escaped = {key: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, text in labels.items()}
    pairs = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"
