"""An HTTP proxy in front of the embedded API server for one account, for other programs such as kubectl.

One rule: a request passes when a rule of the account's table allows its verb, resource, name and namespace, as
kube-apiserver's RBAC does. Every other request gets the 403 answer of a real API server.
"""

import contextlib
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from coordinator.rbac.permissions import USER, Role
from tests.support.kube.servers import Server

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
CARRIED = ("Accept", "Content-Type", "User-Agent")


class RbacRequest(NamedTuple):
    """A request in the terms of RBAC."""

    verb: str
    group: str
    resource: str
    """The resource with its subresource: torchjobs/scale."""
    namespace: str
    name: str


def parse_request(method: str, target: str) -> RbacRequest | None:
    """Return the request in terms of RBAC, or None for a path without a resource, such as discovery."""
    parts = urlsplit(target)
    words = parts.path.strip("/").split("/")
    if words[0] not in ("api", "apis") or len(words) < (3 if words[0] == "api" else 4):
        return None
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    query = parse_qs(parts.query)
    verb = VERBS.get(method) or _reading(method, bool(name), "watch" in query)
    return RbacRequest(verb, group, f"{plural}/{subresource}" if subresource else plural, namespace, name)


def _reading(method: str, has_name: bool, watching: bool) -> str:
    if method == "DELETE":
        return "delete" if has_name else "deletecollection"
    return "watch" if watching else "get" if has_name else "list"


def allows(role: Role, tenant: str, request: RbacRequest, without: tuple[str, str] | None = None) -> bool:
    """Return whether the rules of a role allow a request. `without` is a resource and a verb that are not granted for
    now.
    """
    if without == (request.resource, request.verb):
        return False
    if role is USER and request.verb == "create" and request.group == "authorization.k8s.io":
        return True  # system:basic-user lets every account review its own access
    for rule in role.all_rules():
        bound = tenant if rule in role.queue and not rule.name else rule.name
        if (
            request.verb in rule.all_verbs
            and (request.group, request.resource) == (rule.resource.group, rule.target)
            and bound in ("", request.name)
            and (role is not USER or rule in role.queue or request.namespace == tenant)
        ):
            return True
    return False


@contextlib.contextmanager
def running(server: Server, role: Role, tenant: str, without: tuple[str, str] | None = None) -> Iterator[str]:
    """Yield the URL of a proxy to an embedded server, which runs for the duration of the block."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            request = parse_request(self.command, self.path)
            if request is not None and not allows(role, tenant, request, without):
                return self.reply(403, json.dumps(_forbidden(role, request)).encode(), "application/json")
            with contextlib.closing(_forwarded(server, self.command, self.path, body, self.headers)) as answer:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.end_headers()
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
            return None

        def reply(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Write no log line for a request."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Write no log line for a client that disconnects."""

    door = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=door.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.server_address[1]}"
    finally:
        door.shutdown()
        thread.join()
        door.server_close()


def _forwarded(server: Server, method: str, path: str, body: bytes | None, headers: Any) -> http.client.HTTPResponse:
    request = urllib.request.Request(server.url + path, method=method, data=body)
    request.add_header("Authorization", f"Bearer {server.token}")
    for name in CARRIED:  # an empty header, since urllib would otherwise add a default content type
        request.add_header(name, headers.get(name, ""))
    try:
        found: Any = urllib.request.urlopen(request, context=server.tls, timeout=60)
    except urllib.error.HTTPError as error:
        return error.fp  # type: ignore[return-value]
    else:
        return found  # type: ignore[no-any-return]


def _forbidden(role: Role, request: RbacRequest) -> dict[str, Any]:
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    plural = request.resource.partition("/")[0]
    target = f"{plural}.{request.group}" if request.group else plural
    message = (
        f'{target} "{request.name}" is forbidden: User "torchq-{role.name}" cannot {request.verb} resource '
        f'"{request.resource}" in API group "{request.group}" {where}'
    )
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "Forbidden",
            "details": {"name": request.name, "group": request.group, "kind": plural}, "code": 403}  # fmt: skip
