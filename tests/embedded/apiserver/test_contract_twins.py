"""The embedded API server and a real API server answer the same requests with the same codes, reasons, messages and
objects.

One rule: only values that differ between any two clusters (uids, versions, times) are left out of the comparison.
"""

import itertools
import re
from typing import Any

import pytest

from crds.api_resources import CRDS, EVENTS, LEASES, NAMESPACES, PODS, SERVICES, TENANT_QUEUES, TORCHJOBS
from tests.support.kube import widgets
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, pod, widget

pytestmark = pytest.mark.apiserver

MERGE = "application/merge-patch+json"
_NUMBERS = itertools.count(1)
_VARYING = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "lastTransitionTime")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture
def twins(embedded_server: Server, real_server: Server) -> tuple[list[Server], str]:
    name = f"twins-{next(_NUMBERS)}"
    both = [embedded_server, real_server]
    for server in both:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        assert server.send("POST", NAMESPACES.path(), body)[0] == 201
    return both, name


def _blank(value: Any) -> Any:
    match value:
        case dict():
            return {
                key: _blank(item) for key, item in value.items() if key not in _VARYING and item not in ({}, [], "")
            }
        case list():
            return [_blank(item) for item in value]
        case str():
            return _UUID.sub("<uuid>", value)
        case _:
            return value


def _cause(cause: dict[str, str]) -> tuple[str, str, str] | None:
    field, message = cause.get("field", ""), cause.get("message", "")
    # A real server repeats some causes: causes of the scale paths (with a leading dot), and causes about formats of
    # wrong types. For immutable fields of a pod's spec, the server appends a diff of Go structs after the first line.
    if field.startswith(".") or "Checked value must be of type" in message:
        return None
    return field, message.partition("\n")[0], cause.get("reason", "")


def _told(answer: tuple[int, Any]) -> dict[str, Any]:
    code, body = answer
    if not isinstance(body, dict):
        return {"code": code}  # the answers of some paths are plain text
    if body.get("kind") != "Status":
        return {"code": code, "body": _blank(body)}
    details = body.get("details") or {}
    causes = {_cause(cause) for cause in details.get("causes") or ()} - {None}
    if not causes and code == 404:
        return {"code": code}
    return {"code": code, "reason": body.get("reason"), "causes": causes, "name": details.get("name")}


SETUP = [("POST", WIDGETS.path("{ns}"), widget("w", colour="red", limit=50))]
BAD_WIDGETS: list[dict[str, Any]] = [
    widget(size=-1),
    widget(size="big"),
    widget(size=1.5),
    widget(size=None),
    widget(colour="pink", size=200),
    widget(mode="much too long"),
    widget(code="abc"),
    widget(port=[1]),
    widget(when="yesterday"),
    widget(names=["a", "b", "c", "d"]),
    widget(names=["a", "a"]),
    widget(names=["a", 3]),
    widget(names="a"),
    widget(parts={"a": {"count": 0}}),
    widget(parts={"a": 3}),
    widget(parts={c: {} for c in "abcde"}),
    widget(limit=0),
    widget("Bad_Name"),
    widget(labels={"a b": "c", "fine": "not fine"}),
    widget("x" * 300),
    widget(""),
    {**widget(), "spec": None},
    {**widget(), "spec": []},
    {**widget(), "kind": "Other"},
    {**widget(), "apiVersion": "example.com/v7"},
]


def _core(kind: str, name: str = "n", api_version: str = "v1", **content: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}


def _service(**spec: Any) -> tuple[str, str, Any]:
    return "POST", SERVICES.path("{ns}"), _core("Service", spec={"clusterIP": "None", **spec})


def _lease(**spec: Any) -> tuple[str, str, Any]:
    return "POST", LEASES.path("{ns}"), _core("Lease", api_version=LEASES.api_version, spec=spec)


def _secret(**content: Any) -> tuple[str, str, Any]:
    return "POST", "/api/v1/namespaces/{ns}/secrets", _core("Secret", **content)


def _event(**content: Any) -> tuple[str, str, Any]:
    return "POST", EVENTS.path("{ns}"), _core("Event", **content)


def _scale(**content: Any) -> tuple[str, str, Any]:
    return "PUT", WIDGETS.path("{ns}", "w", "scale"), {**_core("Scale", "w", "autoscaling/v1"), **content}


BUILT_IN: list[tuple[str, str, Any]] = [
    _service(ports=[{"port": 80}], selector={"a": "b"}),
    _service(ports=[{"port": 80, "name": "a"}, {"port": 81}]),
    _service(ports=[{"port": 0}]),
    _service(ports=[{"port": 80, "name": "A_b"}]),
    _service(ports=[{"port": 80, "targetPort": "UPPER_"}]),
    _service(ports=[{"port": 80, "protocol": "X"}]),
    _service(clusterIP="x"),
    _service(type="Odd"),
    _service(type="NodePort", ports=[{"port": 80}]),
    _service(selector={"a b": "c"}),
    _lease(leaseDurationSeconds=0, leaseTransitions=-1),
    _lease(renewTime="2026-01-01T02:00:00.000000+02:00", acquireTime="2026-01-01T00:00:00.123456Z"),
    _lease(renewTime="2026-01-01T00:00:00Z"),
    _lease(renewTime="2026-13-01T00:00:00.000000Z"),
    _lease(leaseDurationSeconds=2**31),
    _secret(type="kubernetes.io/tls"),
    _secret(type="kubernetes.io/basic-auth", stringData={"password": "x"}),
    _secret(data={"a": "not base64"}),
    _secret(data={"a": None}),
    _event(),
    _event(involvedObject={"kind": "Pod", "namespace": "default"}),
    ("POST", "/api/v1/namespaces/{ns}/configmaps", _core("ConfigMap", data={"a": "1"}, binaryData={"a": "YQ=="})),
    (
        "POST",
        "/api/v1/namespaces/{ns}/configmaps",
        {**_core("ConfigMap"), "metadata": {"name": "n", "finalizers": ["x"]}},
    ),
    ("PATCH", "/api/v1/namespaces/{ns}", {"metadata": {"labels": {"a b": "c"}, "finalizers": ["a/b/c"]}}),
    ("PATCH", "/api/v1/namespaces/{ns}/status", {"status": {"phase": "Odd"}}),
    ("PUT", WIDGETS.path("{ns}", "w"), {**widget("w"), "metadata": {"name": "w", "resourceVersion": "0"}}),
    ("GET", WIDGETS.path("{ns}", "w") + "?watch=1", None),
    ("GET", WIDGETS.path("{ns}", "nobody") + "?watch=1", None),
    ("GET", WIDGETS.path("{ns}") + "?watch=1&continue=x", None),
    _scale(spec={"replicas": -1}),
    _scale(spec={"replicas": "x"}),
    _scale(kind="Odd"),
    _scale(metadata={"name": "v"}),
    _scale(metadata={"name": "w", "uid": "x"}),
    ("GET", WIDGETS.path("{ns}", "w", "odd"), None),
    ("POST", PODS.path("{ns}"), {**pod(), "spec": None}),
    ("POST", PODS.path("{ns}"), pod(activeDeadlineSeconds=0, nodeName="A_", hostname="a.b")),
    ("POST", PODS.path("{ns}"), pod(tolerations=[{"operator": "X"}, {"key": "a", "effect": "X"}])),
    ("POST", PODS.path("{ns}"), pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}])),
    (
        "POST",
        PODS.path("{ns}"),
        pod(containers=[{"name": "a", "image": "i", "resources": {"requests": {"example.com/gpu": 1}}}]),
    ),
]
CHANGES: list[tuple[str, Any]] = [
    ("", {"spec": {"containers": []}}),
    ("", {"spec": {"activeDeadlineSeconds": 0}}),
    ("", {"spec": {"tolerations": []}}),
    ("", {"spec": {"schedulingGates": [{"name": "a"}]}}),
    ("", {"metadata": {"labels": {"a b": "c"}, "finalizers": ["odd"]}}),
    ("status", {"status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}}),
    ("status", {"status": {"podIP": "x", "qosClass": "Guaranteed"}}),
]
"""Changes of a pod: the subresource, and the merge patch."""
REQUESTS: list[tuple[str, str, Any]] = [
    *BUILT_IN,
    *(("POST", WIDGETS.path("{ns}"), body) for body in BAD_WIDGETS),
    ("POST", WIDGETS.path("{ns}"), widget("fine", port="http", ratio=1, when="2026-01-01T00:00:00Z", loose={"a": [1]})),
    ("POST", WIDGETS.path("{ns}") + "?fieldValidation=Strict", widget("u", foo=1, parts={"a": {"b": 1}})),
    ("POST", WIDGETS.path("{ns}") + "?dryRun=All", widget("u", foo=1)),
    ("POST", WIDGETS.path("nowhere"), widget("u")),
    ("POST", WIDGETS.path("{ns}"), widget("w")),
    ("PUT", WIDGETS.path("{ns}", "nobody"), widget("nobody")),
    ("PUT", WIDGETS.path("{ns}", "w"), widget("w")),
    ("PATCH", WIDGETS.path("{ns}", "w"), {"spec": {"colour": "blue"}}),
    ("PATCH", WIDGETS.path("{ns}", "w"), {"spec": {"colour": None}}),
    ("PATCH", WIDGETS.path("{ns}", "w"), {"spec": {"size": 60}}),
    ("PATCH", WIDGETS.path("{ns}", "w"), {"spec": {"size": 6}}),
    ("PATCH", WIDGETS.path("{ns}", "w"), {"metadata": {"resourceVersion": "1"}, "spec": {"size": 6}}),
    ("PATCH", WIDGETS.path("{ns}", "w"), {"metadata": {"uid": "x"}, "spec": {"size": 6}}),
    ("PATCH", WIDGETS.path("{ns}", "w"), {"metadata": {"finalizers": ["nodomain"]}}),
    ("PATCH", WIDGETS.path("{ns}", "w", "status"), {"status": {"ready": 2}, "spec": {"size": 9}}),
    ("GET", WIDGETS.path("{ns}", "w", "scale"), None),
    ("PATCH", WIDGETS.path("{ns}", "w", "scale"), {"spec": {"replicas": 3}}),
    ("GET", WIDGETS.path("{ns}", "nobody"), None),
    ("GET", WIDGETS.path("{ns}") + "?labelSelector=a+b", None),
    ("GET", WIDGETS.path("{ns}") + "?fieldSelector=spec.size%3D1", None),
    ("GET", WIDGETS.path("{ns}") + "?limit=-1", None),
    ("GET", WIDGETS.path("{ns}") + "?limit=x", None),
    ("GET", "/apis/example.com/v1/gadgets", None),
    ("GET", "/apis/nobody.example.com/v1", None),
    ("DELETE", WIDGETS.path("{ns}", "nobody"), None),
    ("DELETE", WIDGETS.path("{ns}", "w"), {"preconditions": {"uid": "x"}}),
    ("DELETE", WIDGETS.path("{ns}", "w"), {"preconditions": {"resourceVersion": "1"}}),
    ("DELETE", WIDGETS.path("{ns}", "w"), {"propagationPolicy": "Foreground"}),
    ("DELETE", WIDGETS.path("{ns}", "w"), None),
    ("POST", PODS.path("{ns}"), pod(containers=[])),
    ("POST", PODS.path("{ns}"), pod(containers=[{"name": "Bad_", "image": "i"}])),
    ("POST", PODS.path("{ns}"), pod(containers=[{"name": "a", "image": "i"}] * 2)),
    ("POST", PODS.path("{ns}"), pod(containers=[{"name": "a"}])),
    ("POST", PODS.path("{ns}"), pod(containers=[{"image": "i"}])),
    ("POST", PODS.path("{ns}"), pod(restartPolicy="Sometimes")),
    ("POST", PODS.path("{ns}") + "?fieldValidation=Strict", pod(restartPolcy="Never")),
    ("POST", PODS.path("{ns}"), pod(containers=[{"name": "a", "image": "i", "env": [{"value": "x"}]}])),
    ("POST", PODS.path("{ns}"), pod(containers=[{"name": "a", "image": "i", "ports": [{"hostPort": 1}]}])),
    ("POST", PODS.path("{ns}", "x"), pod()),
    ("POST", CRDS.path(), {**widgets.DEFINITION, "metadata": {"name": "wrong.example.com"}}),
    ("DELETE", NAMESPACES.path(name="default"), None),
    ("POST", TENANT_QUEUES.path(), {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue",
                                    "metadata": {"name": "q"}, "spec": {"weight": 0, "ordering": "LIFO"}}),
    ("POST", TORCHJOBS.path("{ns}"), {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob",
                                      "metadata": {"name": "j"}, "spec": {"torchTaskSpecs": {}}}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_embedded_server_answers_requests_as_a_real_one(twins: tuple[list[Server], str], number: int) -> None:
    both, namespace = twins
    method, path, body = REQUESTS[number]
    content_type = MERGE if method == "PATCH" else "application/json"
    told = []
    for server in both:
        for verb, where, made in SETUP:
            server.send(verb, where.format(ns=namespace), made)
        told.append(_told(server.send(method, path.format(ns=namespace), body, content_type)))
    assert told[0] == told[1]


def test_embedded_server_answers_pod_patches_as_a_real_one(twins: tuple[list[Server], str]) -> None:
    both, namespace = twins
    for part, patch in CHANGES:
        told = []
        for server in both:
            server.send("POST", PODS.path(namespace), pod())
            told.append(_told(server.send("PATCH", PODS.path(namespace, "p", part), patch, MERGE)))
        assert told[0] == told[1], patch


FORMS = ["application/yaml", "text/html", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"]


def test_embedded_server_answers_media_types_and_paths_as_a_real_one(twins: tuple[list[Server], str]) -> None:
    both, namespace = twins
    for server in both:
        server.send("POST", WIDGETS.path(namespace), widget("w"))
    of_widgets = [(WIDGETS.path(namespace, name), form) for name in ("w", "nobody") for form in FORMS]
    of_namespaces = [(NAMESPACES.path(name=name), form) for name in (namespace, "nobody") for form in FORMS]
    paths = ["/odd", "/apis/odd.example.com/v1", "/apis/example.com/v1/odd", "/apis/example.com/v9", "/api/v9",
             "/apis/apps/v9/deployments", "/apis/coordination.k8s.io/v1/odd", "/api/v1/pods/x"]  # fmt: skip
    for path, form in [*of_widgets, *of_namespaces, *((path, "application/json") for path in paths)]:
        codes = [server.send("GET", path, None, "", Accept=form) for server in both]
        assert codes[0][0] == codes[1][0], (path, form)
        assert isinstance(codes[0][1], str) == isinstance(codes[1][1], str), (path, form)
    for server in both:
        assert (
            server.send("GET", WIDGETS.path(namespace) + "?watch=1&timeoutSeconds=1", None, "", Accept=FORMS[0])[0]
            == 406
        )
    told = [server.send("GET", "/apis/example.com/v1")[1]["resources"] for server in both]
    assert told[0] == told[1]


def test_headless_service_is_created_alike_on_both_servers(twins: tuple[list[Server], str]) -> None:
    both, namespace = twins
    spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}
    for server in both:
        code, made = server.send("POST", SERVICES.path(namespace), body)
        assert code == 201
        assert made["spec"]["clusterIP"] == "None"
        assert made["spec"]["ports"][0]["protocol"] == "TCP"
