"""Validation of a pod's volumes, and of references to keys of ConfigMaps and Secrets.

One rule: pure; every problem names its field.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import config_data, object_meta
from embedded.apiserver.status_errors import Cause

_NEEDED = {"configMap": "name", "secret": "secretName", "hostPath": "path", "persistentVolumeClaim": "claimName"}
"""The required field of each source of a volume."""
_MODE_DETAIL = "must be a number between 0 and 0777 (octal), both inclusive"


def check(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the problems of a pod's volumes and of the names in their mounts."""
    volumes = spec.get("volumes") or ()
    checked_names: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name", "")
        yield from status_errors.invalid_values(
            f"spec.volumes[{index}].name", name, [object_meta.dns_label_problem(name)]
        )
        if name in checked_names:
            yield status_errors.duplicate(f"spec.volumes[{index}].name", name)
        checked_names.add(name)
        yield from _check_source(volume, f"spec.volumes[{index}]")
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                if mount["name"] not in checked_names:
                    path = f"spec.{field}[{index}].volumeMounts[{number}].name"
                    yield Cause(path, f"Not found: {status_errors.format_value(mount['name'])}", "FieldValueNotFound")


def check_key_reference(reference: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Yield the problems of a reference to a key of a ConfigMap or Secret."""
    name, key = reference.get("name", ""), reference.get("key", "")
    yield from status_errors.invalid_values(f"{path}.name", name, [object_meta.dns_subdomain_problem(name)])
    if not key:
        yield status_errors.required(f"{path}.key")
    else:
        yield from status_errors.invalid_values(f"{path}.key", key, config_data.key_problems(key))


def _check_source(volume: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for source in [source for source in volume if source != "name"][1:]:
        yield status_errors.not_allowed(f"{path}.{source}", "may not specify more than 1 volume type")
    for source, field in _NEEDED.items():
        if source in volume and not volume[source].get(field):
            yield status_errors.required(f"{path}.{source}.{field}")
    for source in ("configMap", "secret", "downwardAPI"):
        if source in volume:
            yield from _check_mode(volume[source].get("defaultMode"), f"{path}.{source}.defaultMode")
    for source in ("configMap", "secret"):
        for index, item in enumerate((volume.get(source) or {}).get("items") or ()):
            yield from _check_item(item, f"{path}.{source}.items[{index}]")
    for item in (volume.get("downwardAPI") or {}).get("items") or ():  # the API server names no index there
        yield from _check_path(item["path"], f"{path}.downwardAPI.path")
        yield from _check_mode(item.get("mode"), f"{path}.downwardAPI.mode")


def _check_item(item: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for field in ("key", "path"):
        if not item.get(field):
            yield status_errors.required(f"{path}.{field}")
    yield from _check_path(item.get("path", ""), f"{path}.path")
    yield from _check_mode(item.get("mode"), f"{path}.mode")


def _check_path(value: str, path: str) -> Iterator[Cause]:
    if value.startswith("/"):
        yield status_errors.invalid_value(path, value, "must be a relative path")
    if ".." in value.split("/"):
        yield status_errors.invalid_value(path, value, "must not contain '..'")
    elif value.startswith(".."):
        yield status_errors.invalid_value(path, value, "must not start with '..'")


def _check_mode(mode: int | None, path: str) -> Iterator[Cause]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield status_errors.invalid_value(path, mode, _MODE_DETAIL)
