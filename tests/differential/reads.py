"""Calls that read objects, lists, pages and watches, including unusual paths and callers.

One rule: each function yields one event of a story: a single call, or a few related calls.
"""
# ruff: noqa: E501

from collections.abc import Iterator

from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from tests.differential.selectors import FIELDS, SELECTORS
from tests.differential.story import Story, quoted
from tests.differential.wire import Call
from tests.support.kube.widgets import WIDGETS


def read(story: Story) -> Iterator[Call]:
    kind = story.kind()
    where = kind.path(story.namespace, story.name(kind))
    extra = story.r.choice(
        [
            "",
            "",
            "",
            "?pretty=true",
            "?resourceVersion=0",
            "/status",
            "/scale",
            "/nothing",
            "/status/x",
            "?resourceVersion=99999999999",
            "?resourceVersion=x",
        ]
    )
    yield Call(f"get {kind.plural}", "GET", where + (extra if "9999" not in extra or story.r.random() < 0.1 else ""))


def listing(story: Story) -> Iterator[Call]:
    kind = story.kind()
    if not kind.namespaced:  # other episodes write these kinds, too, so only errors can be compared
        selector = story.r.choice(SELECTORS) + ",nobody=has" if story.r.random() < 0.5 else "a b"
        yield Call(f"list {kind.plural}", "GET", kind.path() + "?labelSelector=" + quoted(selector))
        return
    query = "&".join(filter(None, [
        "labelSelector=" + quoted(story.r.choice(SELECTORS)) if story.r.random() < 0.4 else "",
        "fieldSelector=" + quoted(story.r.choice(FIELDS)) if story.r.random() < 0.3 else "",
        "limit=" + story.r.choice(["0", "1", "2", "-1", "x", "", "1.5", "99999999999999999999"]) if story.r.random() < 0.3 else "",
        "resourceVersion=" + story.r.choice(["", "@{listrv}", "x", "-1", "1"]) if story.r.random() < 0.2 else "",
        "resourceVersionMatch=" + story.r.choice(["Exact", "NotOlderThan", "Nope"]) if story.r.random() < 0.1 else "",
        "sendInitialEvents=true" if story.r.random() < 0.02 else "", "timeoutSeconds=" + story.r.choice(["5", "x", "-1"]) if story.r.random() < 0.05 else "",
    ]))  # fmt: skip
    yield Call(f"list {kind.plural}", "GET", kind.path(story.namespace) + ("?" + query if query else ""))


def pages(story: Story) -> Iterator[Call]:
    kind = story.r.choice([WIDGETS, PODS])
    where = kind.path(story.namespace)
    yield story.post("create", kind, story.body(kind, story.name(kind, 1)))
    yield Call("page", "GET", f"{where}?limit=1")
    more = story.r.choice(
        [
            "&limit=1",
            "",
            "&limit=5",
            "&resourceVersion=0",
            "&resourceVersion=5",
            "&labelSelector=app",
            "&resourceVersionMatch=Exact",
            "&limit=0",
        ]
    )
    yield Call("page", "GET", f"{where}?continue=@{{continue}}{more}")
    yield Call(
        "page",
        "GET",
        f"{where}?continue={story.r.choice(['x', 'eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0', ''])}&limit=1",
    )


def strange_path(story: Story) -> Iterator[Call]:
    kind = story.kind()
    where, name = kind.path(story.namespace), story.name(kind)
    path, method = story.r.choice([
        (where, "PUT"), (where, "PATCH"), (f"{where}/{name}", "POST"), (f"{where}/{name}/status", "POST"), (f"{where}/{name}/status", "DELETE"), (f"{where}/{name}/nothing", "GET"), (f"{where}/{name}/scale", "DELETE"),
        (kind.path(), "POST"), (kind.path(), "DELETE") if kind.namespaced else (kind.path(), "PUT"), ("/apis/nobody.example.com/v1/things", "GET"), ("/api/v1/things", "GET"), ("/api/v2", "GET"), ("/api/v1/namespaces/x/things", "GET"), ("/nothing", "GET"),
        (where + "/", "GET"), (where, "HEAD"), (where, "OPTIONS"), ("/apis/example.com/v1/namespaces/x", "GET"), ("/apis/example.com/v2/widgets", "GET"), (f"{where}/{name}/", "GET"), ("//api/v1/pods", "GET"), ("/api/v1/pods/x", "GET"),
        ("/api/v1/watch/nothing", "GET"), ("/apis/", "POST"), ("/version", "POST"), (f"/api/v1/namespaces/{story.namespace}/nodes", "GET"), ("/apis/apps/v2/deployments", "GET"), (f"{where}/{name}/status/more", "GET"), ("/api/v1/namespaces/nowhere/pods", "GET"),
        ("/api/v1/namespaces/nowhere/pods/x", "GET"), (f"/api/v1/namespaces/{story.namespace}/pods/{name}/log", "POST"), (f"/api/v1/namespaces/{story.namespace}/pods/{name}/binding", "GET"), (f"{where}/{name}", "TRACE"),
        (f"/api/v1/namespaces/{story.namespace}/finalize", "PUT"),
    ])  # fmt: skip
    yield Call("path", method, path, "{}" if method in {"POST", "PUT", "PATCH"} else None)


def discover(story: Story) -> Iterator[Call]:
    path = story.r.choice(["/healthz", "/livez", "/readyz", "/healthz/ping", "/readyz/nothing", "/api", "/apis/nobody", "/apis/nobody/v1", "/api/v1/", "/apis/example.com", "/apis/example.com/v1",
                          "/apis/train.distributed.io/v1alpha1", "/apis/train.distributed.io"])  # fmt: skip
    yield Call("discovery", "GET", path)


def stranger(story: Story) -> Iterator[Call]:
    word = story.r.choice(["Bearer wrong", "bearer wrong"])
    method = story.r.choice(["GET", "POST", "DELETE"])
    path = story.r.choice([story.kind().path(story.namespace), "/api", "/apis", "/nothing", "/openapi/v2"])
    yield Call("stranger", method, path, None, (("Authorization", word),))


def accept(story: Story) -> Iterator[Call]:
    kind = story.kind()
    sort = story.r.choice(
        [
            "application/yaml",
            "text/html",
            "*/*",
            "application/json;q=0.5",
            "application/xml",
            "application/json, */*",
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/*",
        ]
    )
    if "proto" in sort:
        sort = (
            "application/vnd.kubernetes.protobuf, application/json"
            if kind in {WIDGETS, TORCHJOBS, TENANT_QUEUES}
            else "application/json"
        )
    yield Call("accept", "GET", kind.path(story.namespace, story.name(kind)), None, (("Accept", sort),))


def watch_oddly(story: Story) -> Iterator[Call]:
    kind = story.r.choice([WIDGETS, PODS])
    query = story.r.choice([
        "resourceVersion=", "resourceVersion=0", "resourceVersion=x", "resourceVersion=-1", "resourceVersion=99999999999", "resourceVersion=@{listrv}", "resourceVersionMatch=NotOlderThan", "sendInitialEvents=true", "fieldSelector=a=b", "labelSelector=a b",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "sendInitialEvents=false&resourceVersion=0", "resourceVersionMatch=Exact&resourceVersion=5", "limit=1", "continue=x", "timeoutSeconds=x", "allowWatchBookmarks=x",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "sendInitialEvents=true&resourceVersionMatch=Exact", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0", "labelSelector=app%3Da",
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "sendInitialEvents=x", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=@{listrv}&allowWatchBookmarks=true",
    ])  # fmt: skip
    yield Call(
        "watch odd",
        "GET",
        f"{kind.path(story.namespace)}?watch={story.r.choice(['1', 'true', 'true', 'x'])}&timeoutSeconds=1&{query}",
    )
    if story.r.random() < 0.3:
        yield Call(
            "watch odd",
            "GET",
            f"{kind.path(story.namespace, story.name(kind))}?watch=1&timeoutSeconds=1&resourceVersion=0",
        )
