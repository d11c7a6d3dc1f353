"""Calls that the embedded server once answered differently from a real server. Whole answers are compared, as in the
differential run.

One rule: one line for each former difference.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from crds.api_resources import LEASES, NAMESPACES, PODS, PRIORITY_CLASSES, SERVICES, TENANT_QUEUES, TORCHJOBS
from tests.differential.compare import Seen, differences
from tests.differential.manifests import CONFIG_MAPS, SECRETS
from tests.differential.wire import Call, Line
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, pod, widget

pytestmark = pytest.mark.apiserver
_NUMBERS = itertools.count(1)
_JSON_PATCH, _MERGE = "application/json-patch+json", "application/merge-patch+json"
_NAMED: dict[str, Any] = {"metadata": {"name": "x"}}


def _post(path: str, body: Any, content_type: str = "application/json") -> Call:
    text = body if isinstance(body, str) else json.dumps(body)
    return Call("create", "POST", path, text, (("Content-Type", content_type),))


def _patch(path: str, body: Any, content_type: str = _MERGE) -> Call:
    return Call("patch", "PATCH", path, json.dumps(body), (("Content-Type", content_type),))


def _get(path: str) -> Call:
    return Call("get", "GET", path)


def _delete(path: str, body: Any = None) -> Call:
    return Call("delete", "DELETE", path, None if body is None else json.dumps(body))


def _typed(resource: Any, **more: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **_NAMED, **more}


_W, _P, _C, _S, _L = (kind.path("@ns") for kind in (WIDGETS, PODS, CONFIG_MAPS, SECRETS, LEASES))
_BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
_BARE = {"name": "main", "image": "i"}
CALLS = {
    "options before the body": _post(_P + "?fieldValidation=Nope", {}),
    "field manager too long": _post(_W + "?fieldManager=" + "x" * 200, widget("x")),
    "invalid dryRun": _post(_W + "?dryRun=Some", widget("x")),
    "contradictory list options": _get(_W + "?resourceVersionMatch=Exact"),
    "streaming is for watches": _get(_P + "?sendInitialEvents=true"),
    "invalid label key": _get(_W + "?labelSelector=a/b/c%3Dd"),
    "label selector without an operator": _get(_W + "?labelSelector=a%20b"),
    "invalid label value": _get(_W + "?labelSelector=a%3D-"),
    "label comparison without a number": _get(_W + "?labelSelector=a%3Ex"),
    "a field selector by a kind without fields": _get(_C + "?fieldSelector=data.a%3Db"),
    "invalid field selector": _get(_C + "?fieldSelector=metadata.name"),
    "an escaped field selector": _get(_W + "?fieldSelector=metadata.name%3Da%5C,b"),
    "limit that is not a number": _get(_W + "?limit=1.5"),
    "continue token with a resource version": _get(_W + "?continue=x&resourceVersion=5"),
    "list items without a type": _get(_P),
    "a body of null": _post(_C, "null"),
    "no body": _post(_C, ""),
    "a list for a body": _post(_C, "[]"),
    "a key twice": _post(_C, '{"kind": "ConfigMap", "kind": "ConfigMap", "metadata": {"name": "x", "name": "x"}}'),
    "a key twice, strictly": _post(
        _W + "?fieldValidation=Strict", json.dumps(widget("x"))[:-1] + ',"spec":{"size":2}}'
    ),
    "YAML": _post(_C, "metadata: {name: x}\ndata: {a: '2026-01-01'}\n", "application/yaml"),
    "unsupported media type": _post(_C, _typed(CONFIG_MAPS), "text/plain"),
    "no kind, of a built-in resource": _post(_C, _NAMED),
    "no kind, of a custom resource": _post(_W, _NAMED),
    "kind that is not a string": _post(_W, {**widget("x"), "kind": [None]}),
    "another version": _post(_P, {**pod("x"), "apiVersion": "v7"}),
    "number instead of a string": _post(_C, _typed(CONFIG_MAPS, data={"a": 3})),
    "string instead of a number": _post(_P, pod("x", activeDeadlineSeconds="soon")),
    "fraction instead of an integer": _post(_P, pod("x", activeDeadlineSeconds=1.5)),
    "null fields": _post(_P, pod("x", nodeSelector=None, tolerations=None)),
    "invalid quantity": _post(_P, pod("x", containers=[{**_BARE, "resources": {"limits": {"cpu": "many"}}}])),
    "canonical form of quantities": _post(
        _P, pod("x", containers=[{**_BARE, "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi", "a.b/c": "1000"}}}])
    ),
    "a label of the wrong type": _post(_W, {**widget("x"), "metadata": {"name": "x", "labels": {"a": 1}}}),
    "metadata that is a list": _post(_W, {**widget("x"), "metadata": []}),
    "a generated name's prefix": _post(_W, {**widget(), "metadata": {"generateName": "gen-a."}}),
    "a version on a new object": _post(_W, {**widget(), "metadata": {"name": "x", "resourceVersion": "x"}}),
    "an owner without a name": _post(_W, {**widget(), "metadata": {"name": "x", "ownerReferences": [{}]}}),
    "an event as an owner": _post(_C, {"metadata": {"name": "x", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]}}),
    "an owner twice": _post(_C, {"metadata": {"name": "x", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "n", "uid": "u"}] * 2}}),
    "a label's prefix": _post(_W, {**widget(), "metadata": {"name": "x", "labels": {"A/b": "", "": "a"}}}),
    "a pod's defaults": _post(_P, pod("x", containers=[{**_BARE, "livenessProbe": {"httpGet": {"port": 80}}}],
                                      volumes=[{"name": "v"}, {"name": "h", "hostPath": {"path": "/"}}])),
    "host ports": _post(_P, pod("x", hostNetwork=True, containers=[{**_BARE, "ports": [{"containerPort": 80}]}])),
    "scheduling gates": _post(_P, pod("x", schedulingGates=[{"name": "a.b/c"}])),
    "priority class": _post(_P, pod("x", priorityClassName="system-node-critical")),
    "unknown priority class": _post(_P, pod("x", priorityClassName="nobody")),
    "priority set by the user": _post(_P, pod("x", priority=7)),
    "priority value too high": _post(
        PRIORITY_CLASSES.path(), {"metadata": {"name": "@ns"}, "value": 2000000000}
    ),
    "a headless service": _post(SERVICES.path("@ns"), _typed(SERVICES, spec={
        "clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]})),
    "timestamps of an event": _post("/api/v1/namespaces/@ns/events", {"metadata": {"name": "x"}, "involvedObject": {
        "kind": "Pod", "name": "p", "namespace": "@ns"}}),
    "change of a secret's type": _patch(_S + "/s", {"type": "other"}),
    "change of immutable data": _patch(_C + "/c", {"data": {"a": "c"}}),
    "invalid data key": _post(_C, _typed(CONFIG_MAPS, data={"a b": "c"})),
    "a PUT that creates": Call("put", "PUT", _L + "/x", json.dumps(_typed(LEASES, spec={"holderIdentity": "me"}))),
    "a PUT without a name": Call("put", "PUT", _W + "/w", json.dumps(widget(""))),
    "unknown field among other errors": Call(
        "put", "PUT", _C + "/nobody", json.dumps({"metadata": {"name": "nobody"}, "status": {}})
    ),
    "unsupported patch format": _patch(_W + "/nobody", {}, "text/x"),
    "a forced patch": _patch(_W + "/nobody?force=true", {}),
    "a JSON patch that fails": _patch(_W + "/w", [{"op": "test", "path": "/spec/size", "value": 77}], _JSON_PATCH),
    "a JSON patch that leaves a list": _patch(_W + "/w", [{"op": "replace", "path": "", "value": []}], _JSON_PATCH),
    "a JSON patch of null": _patch(_C + "/nobody", [], _JSON_PATCH),
    "a JSON patch that adds null": _patch(_W + "/w", [{"op": "add", "path": "/metadata/labels"}], _JSON_PATCH),
    "a patch to another kind": _patch(_C + "/c", {"kind": "Other"}),
    "namespace on a cluster-scoped object": _patch(TENANT_QUEUES.path(name="nobody"), {"metadata": {"namespace": "x"}}),
    "a Scale without a name": Call("scale", "PUT", _W + "/w/scale", json.dumps(
        {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}})),
    "binding without a target": _post(_P + "/p/binding", {**_BINDING, "target": {}}),
    "a binding of another pod": _post(_P + "/p/binding", {**_BINDING, "metadata": {"name": "q"}}),
    "binding of another kind": _post(_P + "/p/binding", {**_BINDING, "kind": "Other"}),
    "a binding": _post(_P + "/p/binding", _BINDING),
    "an eviction": _post(_P + "/p/eviction", _EVICTION),
    "an eviction of another pod": _post(_P + "/p/eviction", {**_EVICTION, "metadata": {"name": "q"}}),
    "answer to the deletion of a pod": _delete(_P + "/p"),
    "answer to the deletion of a service account": _delete("/api/v1/namespaces/@ns/serviceaccounts/a"),
    "two propagation options": _delete(_W + "/w", {"orphanDependents": True, "propagationPolicy": "Background"}),
    "unknown propagationPolicy": _delete(_W + "/w?propagationPolicy=Nope"),
    "options of another kind": _delete(_W + "/w", {"kind": "Pod", "apiVersion": "v1"}),
    "options of the wrong type": _delete(_W + "/w", {"gracePeriodSeconds": "x"}),
    "another uid": _delete(_W + "/w", {"preconditions": {"uid": "x"}}),
    "a deleted namespace": _delete(NAMESPACES.path(name="@ns")),
    "a dry run": _post(_C + "?dryRun=All", _NAMED),
    "HEAD": Call("head", "HEAD", _W),
    "single health check": _get("/healthz/ping"),
    "broken rule in a map": _post(TORCHJOBS.path("@ns"), _typed(TORCHJOBS, spec={"torchTaskSpecs": {"Worker": {
        "template": {"spec": {"containers": [{"name": "a"}]}}, "dependsOn": [{"taskType": "Master"}]}}})),
    "contradictory watch options": _get(_W + "?watch=1&timeoutSeconds=1&resourceVersionMatch=NotOlderThan"),
    "watch from an invalid version": _get(_W + "?watch=1&timeoutSeconds=1&resourceVersion=x"),
}  # fmt: skip


@pytest.fixture
def pair(embedded_server: Server, real_server: Server) -> Iterator[tuple[tuple[Line, Line], str]]:
    namespace = f"calls-{next(_NUMBERS)}"
    lines = (Line(embedded_server), Line(real_server))
    first = [
        _post(NAMESPACES.path(), {"metadata": {"name": namespace}}),
        _post(_W, widget("w", size=5)),
        _post(_P, pod("p")),
        _post(_C, {"metadata": {"name": "c"}, "data": {"a": "b"}, "immutable": True}),
        _post(_S, {"metadata": {"name": "s"}}),
        _post("/api/v1/namespaces/@ns/serviceaccounts", {"metadata": {"name": "a"}}),
    ]
    for line in lines:
        for call in first:
            assert line.send(_in(call, namespace)).code == 201
    yield lines, namespace
    for line in lines:
        line.close()


def _in(call: Call, namespace: str) -> Call:
    body = call.body and call.body.replace("@ns", namespace)
    return Call(call.label, call.method, call.path.replace("@ns", namespace), body, call.headers)


@pytest.mark.parametrize("name", CALLS)
def test_embedded_server_answers_as_a_real_one(name: str, pair: tuple[tuple[Line, Line], str]) -> None:
    (embedded, real), namespace = pair
    call = _in(CALLS[name], namespace)
    replies = (embedded.send(call), real.send(call))
    assert differences(call, replies, (Seen(), Seen())) == [], [reply.text for reply in replies]


def test_watch_events_of_deletions_match_a_real_server(pair: tuple[tuple[Line, Line], str]) -> None:
    lines, namespace = pair
    told = []
    for line in lines:
        start = line.memory.objects[f"Namespace//{namespace}"]["resourceVersion"]
        calls = [_post(_P, pod("x", nodeName="n")), _delete(_P + "/x"), _delete(_P + "/x?gracePeriodSeconds=0")]
        for call in (*calls, _delete(_P + "/p")):
            assert line.send(_in(call, namespace)).code < 300
        watch = line.send(_in(_get(f"{_P}?watch=1&timeoutSeconds=1&resourceVersion={start}"), namespace))
        shown = [(event["type"], event["object"]["metadata"]) for event in watch.lines()]
        told.append([(kind, own["name"], own.get("deletionGracePeriodSeconds")) for kind, own in shown])
    assert told[0] == told[1]
    assert ("MODIFIED", "p", 0) in told[0]


def test_put_keeps_the_finalizers_of_a_namespace(pair: tuple[tuple[Line, Line], str]) -> None:
    lines, namespace = pair
    body = {"metadata": {"name": namespace, "labels": {"a": "b"}}}
    replies = [line.send(Call("put", "PUT", NAMESPACES.path(name=namespace), json.dumps(body))) for line in lines]
    assert [reply.parsed()["spec"] for reply in replies] == [{"finalizers": ["kubernetes"]}] * 2
