"""The code of `torchq run` jobs in a backup: the ConfigMaps that `kubectl get configmaps` has printed.

One rule: pure. Code is accepted only if its digest is the one in its name; otherwise its jobs are treated as jobs
without code.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from coordinator.code import config_maps
from coordinator.code.archive import Archive
from crds import labels
from kube.api import Manifest


class CodeName(NamedTuple):
    """The identity of the code of jobs, which jobs of one namespace may share."""

    namespace: str
    short: str
    """The beginning of the digest."""

    def __str__(self) -> str:
        """Return the names of the ConfigMaps, for people."""
        return f"ConfigMaps {config_maps.PREFIX}{self.short}-..."


def mounted(spec: Manifest) -> list[str]:
    """Return the names of the ConfigMaps with code that the pods of a job mount, in the order of their parts."""
    return [*dict.fromkeys(filter(config_maps.is_name, _volumes(spec)))]


def needed(spec: Manifest, namespace: str) -> CodeName | None:
    """Return the code that the pods of a job mount from ConfigMaps; None if the pods mount no code."""
    names = mounted(spec)
    return CodeName(namespace, names[0].removeprefix(config_maps.PREFIX).partition("-")[0]) if names else None


def is_code(body: Manifest) -> bool:
    """Return whether a ConfigMap has code of jobs."""
    metadata = _map(body.get("metadata"))
    return bool(_map(metadata.get("labels")).get(labels.CODE)) and config_maps.is_name(str(metadata.get("name")))


def archives(found: Iterable[Manifest], wanted: Iterable[CodeName]) -> dict[CodeName, Archive]:
    """Return the archives of ConfigMaps with code that are wanted. Code that lacks a part, or whose content does not
    have the digest in its name, is left out."""
    names = frozenset(wanted)
    copies: dict[tuple[CodeName, str], dict[int, Manifest]] = defaultdict(dict)
    for body in found:
        metadata = body["metadata"]
        name = CodeName(str(metadata.get("namespace")), str(metadata["labels"][labels.CODE]))
        copy, _, part = metadata["name"].rpartition("-")
        if name in names and part.isdecimal():
            copies[name, copy][int(part)] = body
    read = ((name, archive(name, [parts[part] for part in sorted(parts)])) for (name, _), parts in copies.items())
    return {name: content for name, content in read if content is not None}


def archive(name: CodeName, parts: Iterable[Manifest]) -> Archive | None:
    """Return the archive in the parts of one copy; None if its digest is not the one in the name."""
    try:
        return config_maps.join(name.short, map(config_maps.content, parts))
    except ValueError:
        return None


def _volumes(spec: Manifest) -> Iterator[str]:
    """Yield the names of the ConfigMaps in the volumes of a job, whatever else its spec holds."""
    for task in _map(spec.get("torchTaskSpecs")).values():
        pod = _map(_map(_map(task).get("template")).get("spec"))
        volumes = pod.get("volumes")
        for volume in volumes if isinstance(volumes, list) else ():
            yield str(_map(_map(volume).get("configMap")).get("name", ""))


def _map(value: Any) -> Manifest:
    return value if isinstance(value, dict) else {}
