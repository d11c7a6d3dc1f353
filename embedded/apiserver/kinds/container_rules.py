"""Validation of a pod's containers.

One rule: pure; every problem names its field.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from crds.resources import quantities
from embedded.apiserver import status_errors
from embedded.apiserver.kinds import object_meta, services, volume_rules
from embedded.apiserver.status_errors import Cause

_ENV_NAME = re.compile(r"[^=\x00-\x1f\x7f]+")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_STANDARD = ("cpu", "memory", "ephemeral-storage")
"""Resources that may be overcommitted: the limits may exceed the requests."""


def each(spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the containers of a pod, init containers first, each with its path."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


def check(container: dict[str, Any], path: str, names: set[str]) -> Iterator[Cause]:
    """Yield the problems of a container; `names` are the names of earlier containers, to which the container's name is
    added.
    """
    name = container.get("name", "")
    problem = object_meta.dns_label_problem(name)
    if not name:
        yield status_errors.required(f"{path}.name")
    elif problem:
        yield status_errors.invalid_value(f"{path}.name", name, problem)
    elif name in names:
        yield status_errors.duplicate(f"{path}.name", name)
    names.add(name)
    image = container.get("image", "")
    if not image:
        yield status_errors.required(f"{path}.image")
    elif image != image.strip():
        yield status_errors.invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _check_variable(variable, f"{path}.env[{index}]")
    yield from _check_ports(container.get("ports") or [], f"{path}.ports")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container and not any(handler in container[probe] for handler in _HANDLERS):
            yield status_errors.required(f"{path}.{probe}", "must specify a handler type")
    yield from _check_resources(container.get("resources") or {}, f"{path}.resources")


def _check_variable(variable: dict[str, Any], path: str) -> Iterator[Cause]:
    if not _ENV_NAME.fullmatch(variable["name"]):
        detail = "a valid environment variable name must consist only of printable characters other than '='"
        yield status_errors.invalid_value(f"{path}.name", variable["name"], detail)
    source = variable.get("valueFrom")
    if source is not None and variable.get("value"):
        yield status_errors.invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    if source is not None and len(source) != 1:
        choices = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield status_errors.invalid_value(f"{path}.valueFrom", "", f"must specify one of: {choices}")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in (source or {}):
            yield from volume_rules.check_key_reference(variable["valueFrom"][kind], f"{path}.valueFrom.{kind}")


def _check_ports(ports: list[dict[str, Any]], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        port_path, name = f"{path}[{index}]", port.get("name", "")
        problems = list(services.port_name_problems(name)) if name else []
        yield from status_errors.invalid_values(f"{port_path}.name", name, problems)
        if name in names:
            yield status_errors.duplicate(f"{port_path}.name", name)
        if name and not problems:
            names.add(name)
        for field in ("containerPort", "hostPort"):
            if field in port and not 1 <= port[field] <= 65535:
                yield status_errors.invalid_value(
                    f"{port_path}.{field}", port[field], "must be between 1 and 65535, inclusive"
                )


def _check_resources(resources: dict[str, Any], path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    problems = [*check_amounts(limits, f"{path}.limits"), *check_amounts(requests, f"{path}.requests")]
    yield from problems
    if problems:
        return
    if any("/" in name and name not in limits for name in requests):
        yield status_errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    for name in requests.keys() & limits.keys():
        if quantities.exact(requests[name]) > quantities.exact(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield status_errors.invalid_value(f"{path}.requests", requests[name], detail)


def check_amounts(amounts: dict[str, Any] | None, path: str) -> Iterator[Cause]:
    """Yield the problems of a list of resource quantities."""
    for name, amount in (amounts or {}).items():
        amount_path = f"{path}[{name}]"
        if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
            yield status_errors.invalid_value(amount_path, name, "must be a standard resource type or fully qualified")
            yield status_errors.invalid_value(amount_path, name, "must be a standard resource for containers")
        try:
            exact = quantities.exact(amount)
            if exact < 0:
                yield status_errors.invalid_value(amount_path, amount, "must be greater than or equal to 0")
            elif "/" in name and exact % 1:
                yield status_errors.invalid_value(amount_path, amount, "must be an integer")
        except ValueError as error:
            yield status_errors.invalid_value(amount_path, amount, str(error))
