"""Pods whose files and variables come from ConfigMaps and Secrets, on any API server."""

import base64
from typing import Any

import pytest

from crds.api_resources import CONFIG_MAPS, PODS
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube.servers import Server
from tests.support.kube.widgets import pod

LARGEST = 1024 * 1024
ITEM = {"key": "a", "path": "deep/a", "mode": 0o400}


def volume(kind: str = "configMap", **source: Any) -> dict[str, Any]:
    name = {"secretName": "s"} if kind == "secret" else {"name": "m"}
    return {"volumes": [{"name": "v", kind: {**name, **source}}]}


def variable(kind: str, **reference: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": ["true"]}
    return {"containers": [{**container, "env": [{"name": "X", "valueFrom": {kind: reference}}]}]}


def test_sources_are_stored_with_their_defaults(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(PODS, pod(**volume(items=[ITEM], optional=True)), namespace)
    (found,) = [each for each in made["spec"]["volumes"] if each["name"] == "v"]
    assert found["configMap"] == {"name": "m", "defaultMode": 420, "optional": True, "items": [ITEM]}
    made = cluster.create(PODS, pod("q", **variable("secretKeyRef", name="s", key="k", optional=True)), namespace)
    (entry,) = made["spec"]["containers"][0]["env"]
    assert entry == {"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}


@pytest.mark.parametrize("kind", ["configMap", "secret"])
@pytest.mark.parametrize(
    ("source", "field", "message"),
    [
        ({"items": [{"path": "a"}]}, "items[0].key", "Required value"),
        ({"items": [{"key": "a", "path": ""}]}, "items[0].path", "Required value"),
        ({"items": [ITEM, {"key": "a", "path": "/a"}]}, "items[1].path", "must be a relative path"),
        ({"items": [{"key": "a", "path": "x/../../a"}]}, "items[0].path", "must not contain '..'"),
        ({"items": [{"key": "a", "path": "..a"}]}, "items[0].path", "must not start with '..'"),
        ({"items": [{"key": "a", "path": "a", "mode": 0o1000}]}, "items[0].mode", "between 0 and 0777 (octal)"),
        ({"defaultMode": -1}, "defaultMode", "between 0 and 0777 (octal)"),
    ],
)
def test_an_unsafe_item_of_a_volume_is_refused(
    cluster: KubernetesCluster, namespace: str, kind: str, source: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(errors.Invalid) as refused:
        cluster.create(PODS, pod(**volume(kind, **source)), namespace)
    (cause,) = refused.value.causes
    assert cause.field == f"spec.volumes[0].{kind}.{field}"
    assert message in cause.message


@pytest.mark.parametrize("kind", ["configMapKeyRef", "secretKeyRef"])
@pytest.mark.parametrize(
    ("reference", "field", "message"),
    [
        ({"name": "m"}, "key", "Required value"),
        ({"name": "m", "key": "a/b"}, "key", "a valid config key must consist of"),
        ({"name": "m", "key": ".."}, "key", "must not be '..'"),
        ({"name": "A/b", "key": "k"}, "name", "a lowercase RFC 1123 subdomain must consist of"),
        ({"key": "k"}, "name", "a lowercase RFC 1123 subdomain must consist of"),
    ],
)
def test_an_invalid_reference_of_a_variable_is_refused(
    cluster: KubernetesCluster, namespace: str, kind: str, reference: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(errors.Invalid) as refused:
        cluster.create(PODS, pod(**variable(kind, **reference)), namespace)
    assert f"valueFrom.{kind}.{field}: " in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"optional": "yes"}, "of type bool"),
        ({"items": [{"key": 5, "path": "a"}]}, "of type string"),
        ({"itms": []}, 'unknown field "spec.volumes[0].configMap.itms"'),
    ],
)
def test_a_source_with_a_wrong_type_or_field_is_refused(
    server: Server, namespace: str, source: dict[str, Any], words: str
) -> None:
    path = f"{PODS.path(namespace)}?fieldValidation=Strict"
    code, answer = server.send("POST", path, pod(**volume(**source)))
    assert code == 400
    assert words in answer["message"]


def config_map(size: int) -> dict[str, Any]:
    content = base64.b64encode(b"\0" * (size - 1)).decode()
    return {"metadata": {"name": f"m{size}"}, "data": {"t": "x"}, "binaryData": {"b": content}, "immutable": True}


def test_a_config_map_holds_a_mebibyte_and_no_more(cluster: KubernetesCluster, namespace: str) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    cluster.create(CONFIG_MAPS, {**kind, **config_map(LARGEST)}, namespace)
    found = cluster.get(CONFIG_MAPS, f"m{LARGEST}", namespace)
    assert len(base64.b64decode(found["binaryData"]["b"])) == LARGEST - 1
    with pytest.raises(errors.Invalid, match="may not be more than 1048576 bytes"):
        cluster.create(CONFIG_MAPS, {**kind, **config_map(LARGEST + 1)}, namespace)
