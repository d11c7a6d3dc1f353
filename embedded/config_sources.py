"""The parts of ConfigMaps and Secrets that pods use: files of configMap volumes, and variables.

One rule: pure, and a missing object or key is reported in the words of the kubelet.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from crds.api_resources import CONFIG_MAPS, SECRETS, Resource
from embedded import volume_files
from embedded.volume_files import File
from kube.api import Manifest

_REFERENCES = {"configMapKeyRef": CONFIG_MAPS, "secretKeyRef": SECRETS}
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
REFERENCES = tuple(_REFERENCES)
"""The sources of a variable that are read from another object."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The identity of a ConfigMap or Secret."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        return f'{self.resource.kind.lower()} "{self.name}"'


class NotReady(Exception):
    """An object that a container needs, or a key of that object, does not exist yet or cannot be read; the message
    names it.
    """

    def __init__(self, message: str, key: ConfigKey) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True)
class ConfigObject:
    """The contents of a ConfigMap or Secret, or the reason why there are no contents."""

    data: Mapping[str, bytes] = field(default_factory=dict)
    binary: Mapping[str, bytes] = field(default_factory=dict)
    """The `binaryData` of a ConfigMap, which no variable can have."""
    problem: str = ""
    """Why the object could not be read; empty if it was."""
    absent: bool = False
    """Whether it could not be read because it does not exist."""


ConfigObjects = Mapping[ConfigKey, ConfigObject]


def read(key: ConfigKey, manifest: Manifest) -> ConfigObject:
    """Return the contents of an object. Raise ValueError, TypeError or AttributeError if the object is malformed."""
    if key.resource == SECRETS:
        return ConfigObject(_decode(manifest.get("data")))
    texts = {name: str(text).encode() for name, text in (manifest.get("data") or {}).items()}
    return ConfigObject(texts, _decode(manifest.get("binaryData")))


def absent(key: ConfigKey) -> ConfigObject:
    """Return the answer for an object that does not exist."""
    return ConfigObject(problem=f"{key} not found", absent=True)


def _decode(entries: Mapping[str, str] | None) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in (entries or {}).items()}


def volume_keys(spec: Mapping[str, Any], namespace: str) -> set[ConfigKey]:
    """Return the objects that the volumes of a pod are made of."""
    sources = (volume.get("configMap") for volume in spec.get("volumes") or ())
    return {ConfigKey(CONFIG_MAPS, namespace, source["name"]) for source in sources if source}


def variable_keys(container: Mapping[str, Any], namespace: str) -> set[ConfigKey]:
    """Return the objects from which the variables of a container are read."""
    return {key for entry in container.get("env") or () if (key := _key(entry, namespace))}


def files(volume: Mapping[str, Any], namespace: str, objects: ConfigObjects) -> list[File]:
    """Return the files of a configMap volume; none if it is optional and its object or key does not exist.

    Raise NotReady if something is missing that is not optional.
    """
    source = volume["configMap"]
    key = ConfigKey(CONFIG_MAPS, namespace, source["name"])
    config = objects[key]
    if config.problem and not (config.absent and source.get("optional")):
        raise NotReady(f'volume "{volume["name"]}" waits: {config.problem}', key)
    contents = {**config.data, **config.binary}
    items = source.get("items") or [{"key": name, "path": name} for name in sorted(contents)]
    for item in items:
        if item["key"] not in contents and not source.get("optional"):
            raise NotReady(f'volume "{volume["name"]}" waits: {key} has no key {item["key"]!r}', key)
    return [
        File(item["path"], contents[item["key"]], volume_files.mode(item, source))
        for item in items
        if item["key"] in contents
    ]


def value(entry: Mapping[str, Any], namespace: str, objects: ConfigObjects) -> str | None:
    """Return the value of a variable that refers to an object; None if the variable is optional and the object or key
    is missing.

    Bytes that are not UTF-8 are kept in the form in which Python keeps such bytes in an environment. Raise NotReady if
    something is missing that is not optional.
    """
    key = _key(entry, namespace)
    assert key is not None
    source = next(iter(_sources(entry).values()))
    config, optional = objects[key], bool(source.get("optional"))
    if config.problem and not (config.absent and optional):
        raise NotReady(config.problem, key)
    if source["key"] in config.data:
        return config.data[source["key"]].decode(errors="surrogateescape")
    if optional:
        return None
    raise NotReady(f"couldn't find key {source['key']} in {key.resource.kind} {namespace}/{key.name}", key)


def refers(entry: Mapping[str, Any]) -> bool:
    """Return whether the value of a variable is read from a ConfigMap or Secret."""
    return bool(_sources(entry))


def _key(entry: Mapping[str, Any], namespace: str) -> ConfigKey | None:
    for kind, source in _sources(entry).items():
        return ConfigKey(_REFERENCES[kind], namespace, source["name"])
    return None


def _sources(entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    given = entry.get("valueFrom") or {}
    return {kind: given[kind] for kind in REFERENCES if given.get(kind)}


def volume_problems(source: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield every part of a configMap volume that the node does not support."""
    yield from _name_problems(source, path)
    yield from volume_files.mode_problems(source.get("defaultMode"), f"{path}.defaultMode")
    items = source.get("items") or ()
    yield from volume_files.problems(items, f"{path}.items")
    for index, item in enumerate(items):
        yield from _key_problems(item, f"{path}.items[{index}]")


def variable_problems(source: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield every part of a reference of a variable that the node does not support."""
    yield from _name_problems(source, path)
    yield from _key_problems(source, path)


def _name_problems(source: Mapping[str, Any], path: str) -> Iterator[str]:
    name = source.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"{path}.name: {name!r} is not the name of an object"


def _key_problems(source: Mapping[str, Any], path: str) -> Iterator[str]:
    if not isinstance(source.get("key"), str) or not source["key"]:
        yield f"{path}.key: must be the name of a key"
