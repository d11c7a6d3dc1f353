"""Raw HTTP calls to an API server, with values from its earlier answers.

One rule: a call is a text with holes. Values that differ between two servers (uids, versions, tokens) are filled
in from each server's own answers, so that both servers get the same call.
"""

import http.client
import json
import re
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

from tests.support.kube.servers import Server

HOLE = re.compile(r"@\{(\w+)(?::([^}]*))?\}")
_SECONDS = 60.0
HUNG_UP = 0
"""The code of a call without an answer: the handler of the server panicked."""


@dataclass(frozen=True)
class Call:
    """A request. The path and the body of a request may have holes: @{rv:Kind/ns/name}, @{uid:…}, @{old:…}, @{listrv},
    @{continue}.
    """

    label: str
    method: str
    path: str
    body: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def watches(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.method == "GET" and "watch=" in self.path


@dataclass(frozen=True)
class Reply:
    """The answer to a call."""

    code: int
    headers: dict[str, list[str]]
    text: str

    def parsed(self) -> Any:
        """Return the body as JSON, or as text if the body is no JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text

    def lines(self) -> list[Any]:
        """Return the events of a watch."""
        return [json.loads(line) for line in self.text.splitlines() if line.strip()]


@dataclass
class Memory:
    """The values from earlier answers of one server."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    token: str = "none"
    revision: str = "0"

    def note(self, body: Any) -> None:
        """Record the values of an answer."""
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            return
        own = body["metadata"]
        if str(body.get("kind", "")).endswith("List"):
            self.revision = own.get("resourceVersion", self.revision)
            self.token = own.get("continue") or self.token
            for item in body.get("items") or ():
                self.note({"kind": body["kind"].removesuffix("List"), **item})
        elif own.get("uid"):
            key = f"{body.get('kind')}/{own.get('namespace', '')}/{own.get('name', '')}"
            self.objects[key] = own
            self.first.setdefault(key, own.get("resourceVersion", ""))

    def fill(self, text: str, *, quote: bool = False) -> str:
        """Return the text with its holes filled in."""
        found = HOLE.sub(lambda hole: self._value(hole[1], hole[2] or ""), text)
        return urllib.parse.quote(found, safe="/?&=%+:,") if quote else found

    def _value(self, what: str, key: str) -> str:
        own = self.objects.get(key, {})
        match what:
            case "rv":
                return str(own.get("resourceVersion", "1"))
            case "uid":
                return str(own.get("uid", "00000000-0000-4000-8000-000000000000"))
            case "old":
                return self.first.get(key, "1")
            case "listrv":
                return self.revision
            case "continue":
                return urllib.parse.quote(self.token, safe="")
            case _:
                raise ValueError(what)


class Line:
    """A persistent connection to a server, with the values from its answers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.memory = Memory()
        self._open: http.client.HTTPConnection | None = None

    def send(self, call: Call) -> Reply:
        """Send one call. The call uses a new connection if the server has closed the last connection."""
        path = self.memory.fill(call.path, quote=True)
        body = None if call.body is None else self.memory.fill(call.body).encode("utf-8", "surrogatepass")
        headers = {"Authorization": f"Bearer {self.server.token}", **dict(call.headers)}
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            reply = self._exchange(call.method, path, body, headers)
        except (http.client.HTTPException, ConnectionError):
            self.close()
            try:
                reply = self._exchange(call.method, path, body, headers)
            except http.client.RemoteDisconnected:
                self.close()
                return Reply(HUNG_UP, {}, "")
        self.memory.note(reply.parsed())
        return reply

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        connection = self._open = self._open or self._connect()
        connection.request(method, path, body, {k: v for k, v in headers.items() if v})
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        found: dict[str, list[str]] = {}
        for name, value in answer.getheaders():
            found.setdefault(name.lower(), []).append(value)
        return Reply(answer.status, found, text)

    def _connect(self) -> http.client.HTTPConnection:
        where = urllib.parse.urlsplit(self.server.url)
        assert where.hostname
        if where.scheme == "https":
            return http.client.HTTPSConnection(where.hostname, where.port, timeout=_SECONDS, context=self.server.tls)
        return http.client.HTTPConnection(where.hostname, where.port, timeout=_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None
