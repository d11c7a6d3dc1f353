"""What the API server has been asked, and what it holds: numbers for people, benchmarks and tests of budgets.

One rule: counting is one addition per request; the text is made when somebody asks for it.

Names follow Kubernetes' own where these exist. A client is named by the first word of its User-Agent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

Asked = tuple[str, str, str, str]
"""Client, verb, resource, subresource."""

_COLLECTION_VERBS = {"GET": "LIST", "POST": "CREATE", "DELETE": "DELETECOLLECTION"}
_OBJECT_VERBS = {"PUT": "UPDATE"}
_LONGEST_CLIENT = 64
_MOST_CLIENTS = 100
"""Clients told apart; whoever comes later is counted with `others`, so that no client can fill the memory."""


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.requests: Counter[Asked] = Counter()
        self.refusals: Counter[tuple[int, str]] = Counter()
        """By code and reason."""
        self._clients: set[str] = set()

    def asked(self, agent: str, verb: str, resource: str, subresource: str) -> None:
        """A request that is about to be answered."""
        self.requests[self._client(agent), verb, resource, subresource] += 1

    def refused(self, code: int, reason: str) -> None:
        """A request that was not granted."""
        self.refusals[code, reason] += 1

    def _client(self, agent: str) -> str:
        words = agent.split(maxsplit=1)
        name = words[0].partition("/")[0][:_LONGEST_CLIENT] if words else ""
        if name not in self._clients:
            if len(self._clients) >= _MOST_CLIENTS:
                return "others"
            self._clients.add(name)
        return name

    def text(self, objects: Mapping[str, int], watches: int, remembered: int) -> str:
        """All of it in the Prometheus text format; `remembered` are the changes that watches may resume from."""
        return "\n".join([*self._lines(objects, watches, remembered), ""])

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


def verb(method: str, named: bool, watching: bool) -> str:
    """The verb in the words of the API: LIST and GET are both HTTP's GET."""
    if watching:
        return "WATCH"
    return (_OBJECT_VERBS if named else _COLLECTION_VERBS).get(method, method)


def _line(name: str, labels: Mapping[str, str], value: int) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
