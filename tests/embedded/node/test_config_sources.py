"""Files and variables of pods from ConfigMaps and Secrets: which are read, which are waited for, and which are
refused.
"""

import base64
from typing import Any

import pytest

from crds.api_resources import CONFIG_MAPS, SECRETS
from embedded import config_sources, pod_requirements
from embedded.config_sources import ConfigKey, ConfigObject, NotReady
from embedded.node.pods import container_environment
from embedded.volume_files import File
from tests.embedded.node.test_environment import ALLOCATABLE, container, place, pod

MAP, SECRET = ConfigKey(CONFIG_MAPS, "ns", "m"), ConfigKey(SECRETS, "ns", "s")
FOUND = ConfigObject({"a.txt": b"one", "b": b"two"}, {"raw": b"\0\xff"})


def volume(**source: Any) -> dict[str, Any]:
    return {"name": "v", "configMap": {"name": "m", **source}}


def test_contents_are_decoded_from_config_maps_and_secrets() -> None:
    coded = base64.b64encode(b"\0\xff").decode()
    assert config_sources.read(MAP, {"data": {"a": "ü"}, "binaryData": {"raw": coded}}) == ConfigObject(
        {"a": "ü".encode()}, {"raw": b"\0\xff"}
    )
    assert config_sources.read(SECRET, {"data": {"token": coded}}) == ConfigObject({"token": b"\0\xff"})
    assert config_sources.read(MAP, {}) == ConfigObject()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, [File("a.txt", b"one", 0o644), File("b", b"two", 0o644), File("raw", b"\0\xff", 0o644)]),
        ({"defaultMode": 0o400, "items": [{"key": "b", "path": "x/y"}]}, [File("x/y", b"two", 0o400)]),
        (
            {"items": [{"key": "raw", "path": "raw", "mode": 0o700}, {"key": "b", "path": "b", "mode": 0}]},
            [File("raw", b"\0\xff", 0o700), File("b", b"two", 0)],
        ),
        ({"optional": True, "items": [{"key": "none", "path": "n"}, {"key": "b", "path": "b"}]}, [
            File("b", b"two", 0o644)]),
    ],
)  # fmt: skip
def test_files_of_a_volume_follow_its_items_and_modes(source: dict[str, Any], expected: list[File]) -> None:
    assert config_sources.files(volume(**source), "ns", {MAP: FOUND}) == expected


@pytest.mark.parametrize(
    ("source", "config", "message"),
    [
        ({}, config_sources.absent(MAP), 'volume "v" waits: configmap "m" not found'),
        ({"optional": True}, ConfigObject(problem='configmap "m" cannot be read: no'), "cannot be read: no"),
        ({"items": [{"key": "none", "path": "n"}]}, FOUND, 'volume "v" waits: configmap "m" has no key \'none\''),
    ],
)
def test_a_volume_waits_for_what_is_missing(source: dict[str, Any], config: ConfigObject, message: str) -> None:
    with pytest.raises(NotReady, match=message):
        config_sources.files(volume(**source), "ns", {MAP: config})


def test_an_optional_volume_without_its_object_is_empty() -> None:
    assert config_sources.files(volume(optional=True), "ns", {MAP: config_sources.absent(MAP)}) == []


def refer(kind: str, name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {kind: {"name": name, "key": key, **more}}}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (refer("configMapKeyRef", "m", "b"), "two"),
        (refer("secretKeyRef", "s", "token"), "hush"),
        (refer("secretKeyRef", "s", "bytes"), "\udcff"),
        (refer("configMapKeyRef", "m", "none", optional=True), None),
        (refer("secretKeyRef", "gone", "token", optional=True), None),
    ],
)
def test_a_variable_has_the_value_of_its_reference(entry: dict[str, Any], expected: str | None) -> None:
    gone = ConfigKey(SECRETS, "ns", "gone")
    objects = {
        MAP: FOUND,
        SECRET: ConfigObject({"token": b"hush", "bytes": b"\xff"}),
        gone: config_sources.absent(gone),
    }
    wanted = container(env=[entry, {"name": "Y", "value": "<$(X)>"}])
    found = container_environment.environment(pod(wanted), wanted, place(objects=objects))
    assert found.get("X") == expected
    assert found["Y"] == ("<$(X)>" if expected is None else f"<{expected}>")


@pytest.mark.parametrize(
    ("entry", "config", "message"),
    [
        (refer("configMapKeyRef", "m", "none"), FOUND, "couldn't find key none in ConfigMap ns/m"),
        (refer("configMapKeyRef", "m", "raw"), FOUND, "couldn't find key raw in ConfigMap ns/m"),
        (refer("configMapKeyRef", "m", "a"), config_sources.absent(MAP), 'configmap "m" not found'),
        (
            refer("configMapKeyRef", "m", "a", optional=True),
            ConfigObject(problem='configmap "m" cannot be read: no'),
            'configmap "m" cannot be read: no',
        ),
    ],
)
def test_a_variable_waits_for_what_is_missing(entry: dict[str, Any], config: ConfigObject, message: str) -> None:
    with pytest.raises(NotReady, match=message):
        config_sources.value(entry, "ns", {MAP: config})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"volumes": [volume()]}, None),
        ({"volumes": [volume(items=[{"key": "a", "path": "x/a", "mode": 0o400}])]}, None),
        (
            {"volumes": [volume(items=[{"key": "a", "path": "../a"}])]},
            "spec.volumes[0].configMap.items[0].path: '../a'",
        ),
        ({"volumes": [volume(items=[{"key": "a", "path": "/a"}])]}, "spec.volumes[0].configMap.items[0].path: '/a'"),
        ({"volumes": [volume(items=[{"path": "a"}])]}, "spec.volumes[0].configMap.items[0].key: must be"),
        ({"volumes": [volume(items=[{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}])]}, "overlaps"),
        ({"volumes": [volume(defaultMode=0o1000)]}, "spec.volumes[0].configMap.defaultMode: must be"),
        ({"volumes": [{"name": "v", "configMap": {"name": "../m"}}]}, "spec.volumes[0].configMap.name: '../m'"),
        ({"containers": [container(env=[refer("secretKeyRef", "s", "k")])]}, None),
        ({"containers": [container(env=[refer("secretKeyRef", "S/", "k")])]}, "env[0].valueFrom.secretKeyRef.name"),
        ({"containers": [container(env=[refer("configMapKeyRef", "m", "")])]}, "valueFrom.configMapKeyRef.key: must"),
        ({"containers": [container(env=[refer("fileKeyRef", "m", "k")])]}, "valueFrom.fileKeyRef is not supported"),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "only emptyDir, hostPath, downwardAPI and config",
        ),
    ],
)
def test_a_pod_with_an_unsafe_source_is_rejected(spec: dict[str, Any], words: str | None) -> None:
    verdict = pod_requirements.refusal({"containers": [container()], **spec}, {}, ALLOCATABLE)
    assert (verdict is None) if words is None else (verdict is not None and words in verdict.message)
