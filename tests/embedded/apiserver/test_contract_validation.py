"""Objects that any Kubernetes API server refuses, with the messages and field paths of the refusals."""

from typing import Any

import pytest

from crds.api_resources import CRDS, PODS
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube import widgets
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, pod, widget
from tests.support.waiting import until


def _refusal(cluster: KubernetesCluster, namespace: str, body: dict[str, Any]) -> errors.Invalid:
    with pytest.raises(errors.Invalid) as caught:
        cluster.create(WIDGETS, body, namespace)
    return caught.value


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"size": -1}, "spec.size", "should be greater than or equal to 0"),
        ({"size": 101}, "spec.size", "should be less than or equal to 100"),
        ({"size": "big"}, "spec.size", "must be of type integer"),
        ({"size": 1.5}, "spec.size", "must be of type integer"),
        ({"size": True}, "spec.size", "must be of type integer"),
        ({"colour": "pink"}, "spec.colour", 'supported values: "red", "green", "blue"'),
        ({"mode": "much too long"}, "spec.mode", "Too long"),
        ({"code": "abc"}, "spec.code", "should match '^[A-Z]+$'"),
        ({"code": "ABC\n"}, "spec.code", "should match '^[A-Z]+$'"),
        ({"port": 1.5}, "spec.port", "must be of type integer,string"),
        ({"when": "yesterday"}, "spec.when", "must be of type date-time"),
        ({"names": ["a", "b", "c", "d"]}, "spec.names", "Too many"),
        ({"names": ["a", "a"]}, "spec.names[1]", "Duplicate value"),
        ({"names": ["a", "much longer than ten"]}, "spec.names[1]", "Too long"),
        ({"parts": {"a": {"count": 0}}}, "spec.parts.a.count", "should be greater than or equal to 1"),
        ({"parts": {c: {} for c in "abcde"}}, "spec.parts", "Too many"),
        ({"limit": 3, "size": 4}, "spec.size", "size must not exceed limit"),
    ],
)
def test_refusal_names_the_wrong_field(
    cluster: KubernetesCluster, namespace: str, spec: dict[str, Any], field: str, words: str
) -> None:
    refused = _refusal(cluster, namespace, widget(**spec))
    assert [cause.message for cause in refused.causes if cause.field == field and words in cause.message], refused


def test_refusal_names_the_missing_field(cluster: KubernetesCluster, namespace: str) -> None:
    body = widget()
    del body["spec"]["size"]
    refused = _refusal(cluster, namespace, body)
    assert ("spec.size", "Required value") in [(cause.field, cause.message) for cause in refused.causes]
    assert "spec.size: Required value" in str(refused)


def test_refusal_lists_all_wrong_fields(cluster: KubernetesCluster, namespace: str) -> None:
    refused = _refusal(cluster, namespace, widget(size=-1, colour="pink"))
    assert {"spec.size", "spec.colour"} <= {cause.field for cause in refused.causes}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "x" * 254])
def test_invalid_name_is_refused(cluster: KubernetesCluster, namespace: str, name: str) -> None:
    refused = _refusal(cluster, namespace, widget(name))
    assert "metadata.name" in {cause.field for cause in refused.causes}


def test_invalid_labels_are_refused(cluster: KubernetesCluster, namespace: str) -> None:
    refused = _refusal(cluster, namespace, widget(labels={"a b": "c"}))
    assert "metadata.labels" in {cause.field for cause in refused.causes}
    refused = _refusal(cluster, namespace, widget(labels={"a": "b c"}))
    assert "metadata.labels" in {cause.field for cause in refused.causes}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"foo": 1}, "spec.foo"),
        ({"parts": {"a": {"cuont": 1}}}, "spec.parts.a.cuont"),
    ],
)
def test_unknown_fields_are_refused(
    cluster: KubernetesCluster, namespace: str, change: dict[str, Any], path: str
) -> None:
    with pytest.raises(errors.Invalid, match=f'unknown field "{path}"'):
        cluster.create(WIDGETS, widget(**change), namespace)
    cluster.create(WIDGETS, widget(), namespace)
    with pytest.raises(errors.Invalid, match=f'unknown field .*"{path}'):
        cluster.patch(WIDGETS, "w", {"spec": change}, namespace)


def test_unknown_fields_are_dropped_without_strict_validation(server: Server, namespace: str) -> None:
    path = WIDGETS.path(namespace)
    code, made = server.send("POST", path, widget(foo=1, loose={"anything": {"goes": 1}}))
    assert code == 201
    assert made["spec"] == {"size": 1, "mode": "plain", "loose": {"anything": {"goes": 1}}}
    code, refused = server.send("POST", path + "?fieldValidation=Strict", widget("other", foo=1))
    assert code == 400
    assert 'strict decoding error: unknown field "spec.foo"' in refused["message"]


def test_null_fields_get_their_defaults(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(mode=None, colour=None, parts={"a": {}}), namespace)
    assert made["spec"] == {"size": 1, "mode": "plain", "parts": {"a": {"count": 1}}}


def test_transition_rule_refuses_a_change_of_a_final_field(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget(colour="red"), namespace)
    cluster.patch(WIDGETS, "w", {"spec": {"size": 2}}, namespace)
    with pytest.raises(errors.Invalid, match="colour is final") as caught:
        cluster.patch(WIDGETS, "w", {"spec": {"colour": "blue"}}, namespace)
    assert [cause.field for cause in caught.value.causes] == ["spec"]
    with pytest.raises(errors.Invalid, match="colour is final"):
        cluster.patch(WIDGETS, "w", {"spec": {"colour": None}}, namespace)


def test_rule_that_compares_objects_includes_undeclared_fields(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget(sealed={"known": "a", "free": [{"deep": 1}]}), namespace)
    cluster.patch(WIDGETS, "w", {"spec": {"size": 2}}, namespace)
    with pytest.raises(errors.Invalid, match="sealed is final"):
        cluster.patch(WIDGETS, "w", {"spec": {"sealed": {"free": [{"deep": 2}]}}}, namespace)
    with pytest.raises(errors.Invalid, match="sealed is final"):
        cluster.patch(WIDGETS, "w", {"spec": {"sealed": {"free": None}}}, namespace)
    with pytest.raises(errors.Invalid, match="size must not exceed limit"):
        cluster.patch(WIDGETS, "w", {"spec": {"limit": 1}}, namespace)


def _definition(spec: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    body = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {**widgets.DEFINITION, "metadata": {"name": "gadgets.example.com"}, "spec": body}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _ruled(rule: str) -> dict[str, Any]:
    return {**_object(a={"type": "string"}), "x-kubernetes-validations": [{"rule": rule}]}


@pytest.mark.parametrize(
    "spec",
    [
        _object(a={}),
        _object(a={"type": "whatever"}),
        _object(a={"type": "array"}),
        _object(a={"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        {**_object(a={"type": "string"}), "additionalProperties": {"type": "string"}},
        _object(a={"type": "string", "anyOf": [{"type": "string"}]}),
        _object(a={"type": "string", "pattern": "("}),
        _ruled("self.a =="),
        _ruled("self.b == 'x'"),
        _ruled("other.a == 'x'"),
        _ruled("frobnicate(self.a)"),
    ],
)
def test_definition_with_an_invalid_schema_is_refused(cluster: KubernetesCluster, spec: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid):
        cluster.create(CRDS, _definition(spec))


def test_definition_can_be_served_changed_and_deleted(
    cluster: KubernetesCluster, server: Server, namespace: str
) -> None:
    definition = widgets.DEFINITION
    name = "toys.example.com"
    names = {"plural": "toys", "singular": "toy", "kind": "Toy"}
    version = {**definition["spec"]["versions"][0], "subresources": {}}
    spec = {**definition["spec"], "names": names, "versions": [version]}
    cluster.create(CRDS, {**definition, "metadata": {"name": name}, "spec": spec})
    path = f"/apis/example.com/v1/namespaces/{namespace}/toys"
    _until(server, path, 200)
    version["schema"] = {"openAPIV3Schema": _object(spec=_object(size={"type": "integer", "maximum": 5}))}
    cluster.patch(CRDS, name, {"spec": {"versions": [version]}})
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "t"}, "spec": {"size": 6}}
    _until_refused(server, path, toy)
    cluster.delete(CRDS, name)
    _until(server, path, 404)


def _until(server: Server, path: str, code: int) -> None:
    until(lambda: server.send("GET", path)[0], lambda answer: answer == code)


def _until_refused(server: Server, path: str, body: dict[str, Any]) -> None:
    until(lambda: server.send("POST", path + "?dryRun=All", body)[0], lambda answer: answer == 422)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"name": "Bad_Name", "image": "i"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}, "spec.containers[1].name"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        (
            {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 70000}]}]},
            "spec.containers[0].ports[0].containerPort",
        ),
        (
            {"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "spec.containers[0].volumeMounts[0].name",
        ),
        (
            {
                "containers": [
                    {"name": "a", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
                ]
            },
            "spec.containers[0].resources.requests",
        ),
    ],
)
def test_refusal_of_a_pod_names_the_wrong_field(
    cluster: KubernetesCluster, namespace: str, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        cluster.create(PODS, pod(**change), namespace)
    assert field in {cause.field for cause in caught.value.causes}, caught.value


def test_unknown_pod_fields_are_refused(cluster: KubernetesCluster, namespace: str) -> None:
    with pytest.raises(errors.Invalid, match=r'unknown field "spec\.restartPolcy"'):
        cluster.create(PODS, pod(restartPolcy="Never"), namespace)


def test_pod_spec_cannot_change(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(PODS, pod(), namespace)
    with pytest.raises(errors.Invalid, match="spec"):
        cluster.patch(PODS, "p", {"spec": {"restartPolicy": "Never"}}, namespace)
    cluster.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, namespace)
